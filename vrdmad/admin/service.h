// The gRPC half of the admin API: a gRPC server that exists only while clients are connected.
//
// Why it is not simply always there: an idle gRPC server wakes up every now and then, and each of
// its threads is a cost for a daemon that has nothing to do.
//
// AdminService owns one thread, "vrdma-admin". It makes the gRPC server, hands it the connections
// given to add_client(), and after stop() ends every call, takes the server down and, with it, all
// gRPC threads of the process. Its work may block on calls that wait for the control thread, which
// is why none of it happens there.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/log/audit.h"

namespace vrdma::vrdmad {

class AdminService {
 public:
  // More rows for the Counters call, scope "daemon". Any thread.
  using OwnCounters = std::function<std::vector<CounterRow>()>;

  // `on_stopped` is called on the service's thread as the last thing it does: the gRPC server and
  // its threads are gone by then. `backend` outlives the service.
  // `audit` (may be null) is told of each call that changes something.
  // Error: EAGAIN if there can be no thread for it.
  [[nodiscard]] static base::Result<std::unique_ptr<AdminService>> start(
      AdminBackend& backend, OwnCounters own_counters, AuditSink audit,
      std::function<void()> on_stopped);
  AdminService(const AdminService&) = delete;
  AdminService& operator=(const AdminService&) = delete;
  // Joins the thread. Not before on_stopped was called: until then calls may wait for the very
  // thread that would wait here.
  ~AdminService();

  // Any thread, not after stop(). `client` is a connected, non-blocking stream socket.
  void add_client(base::Fd client, AdminPeer peer);

  // Any thread; returns at once. Calls in progress are cancelled, those in the backend end first.
  void stop();

 private:
  AdminService(AdminBackend& backend, OwnCounters own_counters, AuditSink audit,
               std::function<void()> on_stopped);
  void run();
  void serve();
  void refuse_all();

  AdminBackend& backend_;
  const OwnCounters own_counters_;
  const AuditSink audit_;
  const std::function<void()> on_stopped_;

  std::mutex mutex_;  // guards clients_ and stop_
  std::condition_variable changed_;
  std::vector<std::pair<base::Fd, AdminPeer>> clients_;
  bool stop_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace vrdma::vrdmad
