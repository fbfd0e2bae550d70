#include "cli/kubernetes/node/text_file.h"

#include <fcntl.h>

#include "core/base/read_all.h"

namespace vrdma::cli::kubernetes {

base::Result<std::string> read_text_file(const std::string& path, size_t most) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return base::fail_errno("read it");
  auto text = base::read_all(file, most);
  if (text) return text;
  const int code = text.error().code();
  if (code != EFBIG) return base::fail_errno("read it", code);
  return base::fail(EFBIG, "it is larger than " + std::to_string(most >> 10) + " KiB");
}

}  // namespace vrdma::cli::kubernetes
