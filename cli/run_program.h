// Replaces this process by a program, as env(1) does.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/printable.h"

namespace vrdma::cli {

// Exit statuses of env(1) and timeout(1).
constexpr int kCannotRun = 126;  // the program exists, but cannot be run
constexpr int kNotFound = 127;   // the program does not exist

// Searches words[0] in PATH. If it cannot be run, prints a line of `caller` and returns the exit
// status.
[[nodiscard]] inline int run_program(const std::string& caller,
                                     const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  std::cerr << caller << ": cannot run " << base::printable(words[0]) << ": "
            << std::strerror(error) << '\n';
  return error == ENOENT ? kNotFound : kCannotRun;
}

}  // namespace vrdma::cli
