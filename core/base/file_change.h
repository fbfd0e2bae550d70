// Whether a file must be read again.
#pragma once

#include <sys/stat.h>

#include <tuple>

namespace vrdma::base {

// Both are of the same path, by stat(2): it leads to the same file, which was not written
// meanwhile.
[[nodiscard]] inline bool is_unchanged(const struct stat& before, const struct stat& now) {
  const auto key = [](const struct stat& s) {
    return std::tuple(s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                      s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
  };
  return key(before) == key(now);
}

}  // namespace vrdma::base
