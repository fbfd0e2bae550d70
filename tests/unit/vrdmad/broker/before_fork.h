// Waits until a process may be forked.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace vrdma::vrdmad {

inline bool inspects_processes() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "identity" || name == "worker") return true;
  }
  return false;
}

// The daemon forks its helpers before it makes a thread. A destroyed broker leaves threads that
// end soon. If the test forked before they end, ThreadSanitizer would end the helper at its first
// thread.
inline void wait_before_fork() {
  for (int i = 0; i < 1000 && inspects_processes(); ++i) ::usleep(10'000);
}

}  // namespace vrdma::vrdmad
