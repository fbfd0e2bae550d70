// Apart from the rest, which a worker has too: std::filesystem has no use there.
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "vrdmad/records/record_file.h"

namespace vrdma::vrdmad {

std::vector<RecordFile::Name> RecordFile::list(const std::string& directory,
                                               std::string_view suffix) {
  namespace fs = std::filesystem;
  std::vector<Name> found;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(directory, ignored); it != fs::directory_iterator();
       it.increment(ignored))
    if (const fs::path& path = it->path(); path.extension() == suffix)
      found.push_back(
          {path, static_cast<uint32_t>(std::strtoul(path.stem().c_str(), nullptr, 10))});
  return found;
}

}  // namespace vrdma::vrdmad
