// Child processes, and the signals that a waiting process receives.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

// Receives SIGCHLD and the signals for the command through a descriptor. One object per process. If
// a child makes its own, create it after the fork: it would otherwise treat the signals blocked
// here as blocked by its caller.
class Signals {
 public:
  Signals();
  [[nodiscard]] int fd() const { return fd_.get(); }  // readable: next() has something
  // The next pending signal; 0: none. `*sent` is false if the terminal sent it to its foreground
  // process group, so that the command has it already.
  [[nodiscard]] int next(bool* sent);
  // In a child that runs a program: restores the previous signal mask.
  void restore() const;

 private:
  base::Fd fd_;
  sigset_t before_{};
};

// How to start a program.
struct Start {
  std::vector<std::string> words;  // [0] is searched in PATH if it has no slash
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  int output = -1;           // its stdout and stderr; -1: this process's
  bool no_input = false;     // its stdin is /dev/null
  bool own_session = false;  // ctrl-C at the terminal does not reach it
};
// If the program cannot be run, the child ends as run_program() says. It is killed when this
// process ends.
[[nodiscard]] base::Result<pid_t> start(const Start& what, const Signals& signals);

// The exit status in the shell's convention.
[[nodiscard]] int status_of(int wait_status);

// Waits for one child: its exit status as of status_of().
[[nodiscard]] int wait_for(pid_t child);

}  // namespace vrdma::cli::sandbox
