// The admin socket: authorizes clients, and starts and stops gRPC.
//
//            first client                      last client gone, or stop()
//   idle  --------------->  serving (gRPC)  ------------------------------->  ending --> idle
//
// Idle is a plain listening socket, which costs nothing. In `serving` an AdminService holds the
// connections; this class keeps a duplicate descriptor of each, only to detect a hang-up. In
// `ending` the AdminService shuts its server down on its own thread; new clients wait for the next
// service. gRPC's library ends later, when nothing can wait for that (api/keep_grpc.h).
//
// Used on the control thread only; no function blocks it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/acceptor.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/admin/service.h"

namespace vrdma::vrdmad {

class AdminServer {
 public:
  // Listens on `path` (mode 0600; see RunDir::admin_socket()), which must not exist. Clients must
  // be root or the daemon's own user. `loop` and `backend` must outlive the server. `audit` (may be
  // null) is called for each call that changes something.
  [[nodiscard]] static base::Result<std::unique_ptr<AdminServer>> start(base::EventLoop& loop,
                                                                        AdminBackend& backend,
                                                                        const std::string& path,
                                                                        AuditSink audit = {});
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  // Removes the socket's path. Destroy only without clients or after stop() has called `done`;
  // otherwise the destructor would wait for calls that wait for this thread.
  ~AdminServer();

  // Stops listening, ends every call and watch, and calls `done` on the loop when gRPC's
  // server has ended; at once if no client is connected. The loop must keep running until then.
  void stop(std::function<void()> done);

  [[nodiscard]] bool idle() const { return service_ == nullptr; }
  [[nodiscard]] size_t clients() const { return clients_.size(); }
  // Any thread. Clients refused because of their uid, or because no thread could be started.
  [[nodiscard]] uint64_t refused() const { return refused_; }
  // Any thread. The counters of this class, scope "daemon".
  [[nodiscard]] std::vector<CounterRow> counters() const;

 private:
  // Destroyed in reverse order: the watch before the descriptor.
  struct Client {
    base::Fd fd;  // a duplicate: gRPC owns the original
    base::EventLoop::Watch hangup;
  };

  AdminServer(base::EventLoop& loop, AdminBackend& backend, std::string path, AuditSink audit);
  void welcome(base::Fd client);
  void admit(base::Fd client, AdminPeer peer);
  void drop(uint64_t id);
  void end_service();
  void on_service_stopped();

  base::EventLoop& loop_;
  AdminBackend& backend_;
  std::string path_;  // empty: stopped
  const AuditSink audit_;

  std::unique_ptr<serve::Acceptor> acceptor_;  // null: stopped

  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;                   // the clients of service_
  std::vector<std::pair<base::Fd, AdminPeer>> waiting_;  // arrived while service_ was ending
  std::unique_ptr<AdminService> service_;
  bool ending_ = false;             // service_->stop() was called
  base::EventLoop::Timer release_;  // of gRPC's library, after the last service
  std::function<void()> done_;      // stop() was called

  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> service_starts_ = 0;
};

}  // namespace vrdma::vrdmad
