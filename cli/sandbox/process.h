// Child processes, and the signals that a waiting process takes.
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

// Takes, instead of acting on them, SIGCHLD and the signals that are for the command. One object in
// a process. Not to be made before the fork of a process that makes one itself, which would take
// for blocked what is only taken here.
class Signals {
 public:
  Signals();
  [[nodiscard]] int fd() const { return fd_.get(); }  // readable: next() has something
  // Of the signals that came: 0, nothing any more. `*sent` is false if the terminal sent it, to all
  // processes of its foreground group: then the command has it already.
  [[nodiscard]] int next(bool* sent);
  // In a child that runs a program: what was blocked before.
  void restore() const;

 private:
  base::Fd fd_;
  sigset_t before_{};
};

// How a program starts.
struct Start {
  std::vector<std::string> words;  // [0] is searched in PATH if it has no slash
  std::vector<std::pair<std::string, std::string>> environment;  // beside what there is
  int output = -1;           // its stdout and stderr, if not this process's
  bool no_input = false;     // its stdin is /dev/null
  bool own_session = false;  // ctrl-C at the terminal is not for it
};
// Exits with kCannotRun or kNotFound, after a line, if it cannot be run. The child is killed when
// this process ends.
[[nodiscard]] base::Result<pid_t> start(const Start& what, const Signals& signals);

// Replaces this process by `words`. Returns the exit status for that it could not, after a line.
[[nodiscard]] int run_instead(const std::vector<std::string>& words);

// The exit status as a shell gives it.
[[nodiscard]] int status_of(int wait_status);

// Waits for one child: its exit status as of status_of().
[[nodiscard]] int wait_for(pid_t child);

}  // namespace vrdma::cli::sandbox
