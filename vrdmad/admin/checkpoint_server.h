// The calls of the admin API about parked processes (checkpoint.proto) without gRPC, for the plugin
// of CRIU: R/checkpoint.sock, mode 0600. CRIU must load no library for them and start no program,
// and the start of gRPC would make the pause of a program longer by tens of milliseconds.
//
// A connection carries one request, which ends when the client shuts down its end, and one answer,
// which ends with the connection. Both are text:
//
//   park PID                  the parked process as JSON (api/parked_text.h)
//   show PROCESS              the same; PROCESS: its token, or its number
//   detach PROCESS            the same, with what can be carried elsewhere
//   place, attach             the next lines are the process as JSON. The answer to place is its
//                             sessions, with their sockets
//   resume PROCESS
//   abandon PROCESS           {}
//
// Any of them may answer {"error": SENTENCE, "errno": N}. Clients must be root or the daemon's own
// user. A client has kPatience to send and to receive.
//
// Each connection has a thread, because the calls wait for the control thread. Without a connection
// there is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/acceptor.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/log/audit.h"

namespace vrdma::vrdmad {

class CheckpointServer {
 public:
  static constexpr size_t kMost = 32;                // connections; more of them wait
  static constexpr size_t kMostBytes = 16ull << 20;  // of a request
  static constexpr std::chrono::seconds kPatience{10};

  // Listens on `path`, which must not exist. `loop` is the control thread's, which all functions
  // are called on; it and `backend` must outlive the server. `audit` (may be null) is called on any
  // thread for each call that changes something.
  [[nodiscard]] static base::Result<std::unique_ptr<CheckpointServer>> start(
      base::EventLoop& loop, AdminBackend& backend, const std::string& path, AuditSink audit = {});
  CheckpointServer(const CheckpointServer&) = delete;
  CheckpointServer& operator=(const CheckpointServer&) = delete;
  // Removes the socket's path. Destroy only without connections, or after stop() has called `done`.
  ~CheckpointServer();

  // Stops listening, and calls `done` on the loop when no connection is left.
  void stop(std::function<void()> done);

 private:
  struct Conversation {
    base::Fd socket;
    std::thread thread;
  };

  CheckpointServer(base::EventLoop& loop, AdminBackend& backend, std::string path, AuditSink audit)
      : loop_(loop), backend_(backend), path_(std::move(path)), audit_(std::move(audit)) {}
  void welcome(base::Fd client);
  void on_over(uint64_t id);
  // On a conversation's thread.
  void converse(int socket, const AdminPeer& who) const;
  [[nodiscard]] base::Result<std::string> serve(const std::string& request,
                                                const AdminPeer& who) const;
  template <class Result>
  Result audited(const AdminPeer& who, const std::string& action, const std::string& object,
                 Result result) const;

  base::EventLoop& loop_;
  AdminBackend& backend_;
  const std::string path_;
  const AuditSink audit_;
  std::unique_ptr<serve::Acceptor> acceptor_;  // null: stopped
  std::map<uint64_t, Conversation> conversations_;
  uint64_t next_id_ = 1;
  std::function<void()> done_;  // stop() was called
};

}  // namespace vrdma::vrdmad
