// The admin socket: who may connect, and how long gRPC lives.
//
//            first client                      last client gone, or stop()
//   idle  --------------->  serving (gRPC)  ------------------------------->  ending --> idle
//
// Idle is a plain listening socket, which costs nothing. In `serving` an AdminService holds the
// connections; this class keeps a second descriptor of each, only to see it hang up. In `ending`
// the AdminService takes gRPC down on its own thread; who connects meanwhile waits for the next
// one.
//
// Used on the control thread only, which must not be blocked by it: nothing here waits.
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
#include "vrdmad/admin/backend.h"
#include "vrdmad/admin/service.h"
#include "vrdmad/broker/acceptor.h"

namespace vrdma::vrdmad {

class AdminServer {
 public:
  // Listens on `path` (mode 0600; see RunDir::admin_socket()), which must not be there. Clients
  // must be root, or the user that the daemon itself runs as. `loop` and `backend` outlive it.
  // `audit` (may be null) is told of each call that changes something.
  [[nodiscard]] static base::Result<std::unique_ptr<AdminServer>> start(base::EventLoop& loop,
                                                                        AdminBackend& backend,
                                                                        const std::string& path,
                                                                        AuditSink audit = {});
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;
  // Legal when nobody is connected, or once stop() has called `done`; removes the socket's path.
  // Otherwise it would wait for calls that wait for this thread.
  ~AdminServer();

  // Stops listening, ends every call and watch, and calls `done` on the loop when the last gRPC
  // thread has gone: at once if nobody is connected. The loop must go on running until then.
  void stop(std::function<void()> done);

  [[nodiscard]] bool idle() const { return service_ == nullptr; }
  [[nodiscard]] size_t clients() const { return clients_.size(); }
  // Any thread. Peers turned away because of their uid, or because there is no thread to serve
  // them.
  [[nodiscard]] uint64_t refused() const { return refused_; }
  // Any thread. Of this class: scope "daemon".
  [[nodiscard]] std::vector<CounterRow> counters() const;

 private:
  // Members go in reverse: the watch before the descriptor.
  struct Client {
    base::Fd fd;  // a duplicate: gRPC owns the one it works with
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

  std::unique_ptr<Acceptor> acceptor_;  // null: stopped

  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;                   // those of service_
  std::vector<std::pair<base::Fd, AdminPeer>> waiting_;  // came while service_ was ending
  std::unique_ptr<AdminService> service_;
  bool ending_ = false;         // service_->stop() was called
  std::function<void()> done_;  // stop() was called

  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> service_starts_ = 0;
};

}  // namespace vrdma::vrdmad
