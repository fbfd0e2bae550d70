// A helper process of the daemon as a fork of the test, which has the code of all of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

inline bool inspects_processes() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "identity" || name == "worker") return true;
  }
  return false;
}

// Returns the socket to a process that calls `serve`, which does not return, with the other end.
// Waits for the threads of a destroyed broker, which end soon: if the test forked before they end,
// ThreadSanitizer would end the helper at its first thread.
inline base::Fd fork_helper(const std::function<void(base::Fd)>& serve) {
  for (int i = 0; i < 1000 && inspects_processes(); ++i) ::usleep(10'000);
  auto ends = ipc::make_socket_pair().value();
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    serve(std::move(ends.second));
    ::_exit(1);
  }
  return std::move(ends.first);
}

}  // namespace vrdma::vrdmad
