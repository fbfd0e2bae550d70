// What a pidfd refers to.
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// False: not within 20 s.
inline bool ends(const base::Fd& pidfd) {
  pollfd ended{pidfd.get(), POLLIN, 0};
  return ::poll(&ended, 1, 20'000) == 1;
}

// The first word of a line of a file in /proc.
inline std::string word_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word, value; file >> word;)
    if (word == key && file >> value) return value;
  return {};
}

inline pid_t pid_of(const base::Fd& pidfd) {
  const std::string pid = word_of("/proc/self/fdinfo/" + std::to_string(pidfd.get()), "Pid:");
  return pid.empty() ? 0 : std::stoi(pid);
}

}  // namespace vrdma::vrdmad
