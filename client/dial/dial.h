// The way to the daemon's sockets, and to the daemon that comes after it.
#pragma once

#include <chrono>
#include <string>

#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

// R/netns/<cookie of this thread's netns>: where the sockets of its vdevices are. Empty: unknown,
// because the kernel is older than 5.14.
[[nodiscard]] std::string socket_directory();

// Connects to the socket at `path`. `flags`: SOCK_NONBLOCK, or none. Errors as of connect(2).
[[nodiscard]] base::Result<base::Fd> dial(const std::string& path, int flags = 0);

// The connections of a program of which no daemon knows yet. One that ends in the middle of what it
// is asked makes way for the next: who starts while vrdmad is replaced is served by the new one.
// Not for two threads at once.
class Newcomer {
 public:
  // Errors as of dial(); does not wait.
  [[nodiscard]] base::Result<base::Fd> begin(const std::string& path);
  // After a connection was closed without an answer. Waits for a daemon for some seconds; who is
  // hung up on again and again is not wanted.
  [[nodiscard]] base::Result<base::Fd> again(const std::string& path);
  // It is wanted.
  void answered() { dials_ = 1; }

 private:
  int dials_ = 0;  // without an answer
};

// One question to the daemon that comes next, on a connection of its own.
//
// Never waits. A daemon that is still starting has a socket, but does not answer there yet; and one
// that was asked is not asked again, for what it answers goes to the connection that asked.
// Not for two threads at once.
class Redial {
 public:
  // The connection on which `answer` came, which blocks; invalid: none came yet.
  template <class Question, class Answer>
  [[nodiscard]] base::Fd ask(const std::string& path, const Question& question, Answer* answer) {
    return ask(path, &question, sizeof question, answer, sizeof *answer, ipc::versions_of(answer));
  }
  // Until it is worth asking again, but for no longer than that.
  void wait(std::chrono::milliseconds most) const;

 private:
  [[nodiscard]] base::Fd ask(const std::string& path, const void* question, size_t question_size,
                             void* answer, size_t answer_size, ipc::Sized versions);

  base::Fd asked_;
};

}  // namespace vrdma::client
