// The gRPC half of the admin API: a gRPC server that exists only while clients are connected,
// because an idle one wakes up periodically, and its threads cost memory.
//
// AdminService owns one thread, "vrdma-admin". It creates the gRPC server and hands it the
// connections given to add_client(). After stop() it ends every call and the server, and
// leaves gRPC's library (api/keep_grpc.h) to AdminServer. Its work may block on calls that wait for
// the control thread, so none of it runs there.
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

  // The service's thread calls `on_stopped` last, when the gRPC server has ended.
  // `backend` must outlive the service. `audit` (may be null) is called for each call that changes
  // something. EAGAIN if no thread can be started.
  [[nodiscard]] static base::Result<std::unique_ptr<AdminService>> start(
      AdminBackend& backend, OwnCounters own_counters, AuditSink audit,
      std::function<void()> on_stopped);
  AdminService(const AdminService&) = delete;
  AdminService& operator=(const AdminService&) = delete;
  // Joins the thread. Destroy only after on_stopped was called: until then calls may wait for the
  // thread that runs the destructor.
  ~AdminService();

  // Any thread, not after stop(). `client` is a connected, non-blocking stream socket.
  void add_client(base::Fd client, AdminPeer peer);

  // Any thread; returns at once. Cancels calls in progress; calls in the backend finish first.
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

  std::thread thread_;  // last: uses all members above
};

}  // namespace vrdma::vrdmad
