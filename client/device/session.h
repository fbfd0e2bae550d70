// The program's end of a session socket: requests, replies and liveness of the daemon.
//
// The next daemon's socket takes over the descriptor number. call() waits for it as long as
// mediated work does.
#pragma once

#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "client/dial/daemon_link.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

class Session final : public DaemonLink<ipc::Request, ipc::Reply> {
 public:
  // From now on another daemon may take over. `replace` must put the new socket in the place of the
  // old one. It is called under the session's lock, and may take only leaf locks. So may `find`,
  // which returns the path of the vdevice's socket in this network namespace; empty: there is none.
  void resumable(const ipc::HelloReply& hello, std::function<void(base::Fd socket)> replace,
                 std::function<std::string()> find);
  using DaemonLink::Resumed;
  // After hung_up(): whether another daemon serves the session now. Does not wait.
  [[nodiscard]] Resumed resume();
  // The epoch of the daemon that serves the session.
  [[nodiscard]] uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // One request and its reply. 0, or the errno that the daemon answered; EIO if the daemon ended;
  // EPERM in a child that fork(2) made, whose requests would come between those of its parent.
  // Descriptors sent with the reply go to `received`. Any thread.
  int call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent = {},
           std::vector<base::Fd>* received = nullptr);
  // The same for a request that consists of a handle.
  int call(ipc::Call call, uint32_t handle);
  // The last request; later ones fail with EIO. If no daemon receives it, sets `serving`
  // (ArenaHeader::epoch) to 0 so that none takes the session over.
  void goodbye(ipc::Word& serving);
  // A one-way request. It must be idempotent, because it is repeated to the next daemon unless a
  // later call was answered. 0 or EIO.
  int tell(ipc::Request& request);

  // Of this process; not of the one that fork(2) made this one of.
  [[nodiscard]] bool is_own() const;
  // While it is held, only the calling thread makes requests.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> alone() { return std::unique_lock(mutex_); }

  // True if the other end is closed; asks the kernel.
  [[nodiscard]] bool hung_up() const;

 private:
  void say_goodbye(ipc::Word& serving);
  void ask_to_resume(ipc::Request* request) override;
  Taken on_taken(const ipc::Reply& reply, base::Fd socket) override;
  std::string path_now(const std::string& path) override;

  const pid_t owner_ = ::getpid();
  uint32_t session_ = 0;
  std::function<void(base::Fd)> replace_;
  std::function<std::string()> find_;
  std::atomic<uint32_t> epoch_ = 0;
};

// An object that the daemon has just created for this process. If this is destroyed before keep(),
// because something threw, it undoes the creation.
class Made {
 public:
  Made(Session& session, ipc::Call undo, uint32_t handle)
      : session_(&session), undo_(undo), handle_(handle) {}
  ~Made();
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  void keep() { session_ = nullptr; }

 private:
  Session* session_;
  ipc::Call undo_;
  uint32_t handle_;
};

}  // namespace vrdma::client
