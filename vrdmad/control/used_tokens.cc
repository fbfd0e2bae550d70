#include "vrdmad/control/used_tokens.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

namespace {

constexpr char kTakenBack = '-';

void append(const std::string& path, const std::string& lines, int flags) {
  const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600));
  if (!file.valid() ||
      ::write(file.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
    spdlog::warn("{}: {}: the next vrdmad does not know which images were restored", path,
                 std::strerror(errno));
}

}  // namespace

void UsedTokens::read() {
  if (std::exchange(is_read_, true)) return;
  std::vector<std::string> lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.size() > kMost) {
    lines.erase(lines.begin(), lines.end() - kMost / 2);
    std::string kept;
    for (const std::string& line : lines) kept += line + "\n";
    append(path_, kept, O_TRUNC);
  }
  for (const std::string& line : lines) {
    if (line.starts_with(kTakenBack))
      all_.erase(line.substr(1));
    else
      all_.insert(line);
  }
}

bool UsedTokens::has(const std::string& token) {
  read();
  return all_.contains(token);
}

void UsedTokens::add(const std::string& token) {
  read();
  if (all_.insert(token).second) append(path_, token + "\n", O_APPEND);
}

void UsedTokens::take_back(const std::string& token) {
  read();
  if (all_.erase(token) != 0) append(path_, kTakenBack + token + "\n", O_APPEND);
}

}  // namespace vrdma::vrdmad
