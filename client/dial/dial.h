// Connecting to the daemon's sockets, and to those of its successor.
#pragma once

#include <chrono>
#include <string>

#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::client {

// VRDMA_RUN_DIR; nullptr: it is not set, or empty, or the program has more rights than its user.
[[nodiscard]] const char* named_run_directory();
// R: that, or /run/vrdma.
[[nodiscard]] std::string run_directory();
// R/netns/<cookie of this thread's netns>: the directory of its vdevices' sockets. Empty: unknown,
// because the kernel is older than 5.14.
[[nodiscard]] std::string socket_directory();

// False: the program was written to disk and came back in another network namespace, where other
// directories have the sockets. `path`: of one in socket_directory() when it was opened.
[[nodiscard]] bool is_where_it_was(const std::string& path);

// Connects to the socket at `path`. `flags`: SOCK_NONBLOCK, or none. Errors as of connect(2).
[[nodiscard]] base::Result<base::Fd> dial(const std::string& path, int flags = 0);

// Connections of a program that no daemon has registered yet. If one is closed before the daemon
// answers, the next dial reaches the successor, so a program that starts while vrdmad is replaced
// is served. Not thread-safe.
class Newcomer {
 public:
  // Daemons may die at each of them, one after the other.
  static constexpr int kMostDials = 16;

  // Errors as of dial(). `waits`: up to 3 s for a daemon that is being started again.
  [[nodiscard]] base::Result<base::Fd> begin(const std::string& path, bool waits);
  // After a connection was closed without an answer: dials again, and waits up to 3 s for a daemon.
  // Gives up after kMostDials without an answer. Pauses between them, half a second in all, so that
  // connections which are closed at once do not use them up.
  [[nodiscard]] base::Result<base::Fd> again(const std::string& path);
  // Resets the count of dials.
  void answered() { dials_ = 1; }

 private:
  int dials_ = 0;  // without an answer
};

// One request to the next daemon, on a separate connection.
//
// Never waits. A daemon that is still starting already has a socket but does not answer yet.
// Therefore the connection is kept until the answer to its one request arrives. Not thread-safe.
class Redial {
 public:
  // The connection on which `answer` arrived, in blocking mode; invalid: no answer yet.
  template <class Question, class Answer>
  [[nodiscard]] base::Fd ask(const std::string& path, const Question& question, Answer* answer) {
    return ask(path, &question, sizeof question, answer, sizeof *answer, ipc::versions_of(answer));
  }
  // A daemon has the request, and has not answered yet.
  [[nodiscard]] bool is_asked() const { return asked_.valid(); }
  // Waits for the answer, for at most `most`.
  void wait(std::chrono::milliseconds most) const;

 private:
  [[nodiscard]] base::Fd ask(const std::string& path, const void* question, size_t question_size,
                             void* answer, size_t answer_size, ipc::Sized versions);

  base::Fd asked_;
};

}  // namespace vrdma::client
