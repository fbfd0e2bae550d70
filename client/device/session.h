// The program's end of a session socket: requests, answers, and whether the daemon lives.
//
// The daemon that takes over is connected to under the same descriptor number. call() waits for it
// as long as mediated work does.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "client/dial/daemon_link.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

class Session final : public DaemonLink<ipc::Request, ipc::Reply> {
 public:
  // From now on another daemon may serve it. `replace` is to put the new socket in the place of the
  // old one; it is called under the session's lock, and may take none but leaves.
  void resumable(const ipc::HelloReply& hello, std::function<void(base::Fd socket)> replace);
  using DaemonLink::Resumed;
  // After hung_up(): whether another daemon serves it now. Does not wait.
  [[nodiscard]] Resumed resume();
  // Of the daemon that serves it.
  [[nodiscard]] uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

  // One request and its answer. 0, or the errno that the daemon answered; EIO if the daemon has
  // gone. File descriptors that come beside the answer go to `received`. Any thread.
  int call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent = {},
           std::vector<base::Fd>* received = nullptr);
  // The same for a request that is nothing but a handle.
  int call(ipc::Call call, uint32_t handle);
  // The last request; what is asked afterwards is answered by EIO. `serving` (ArenaHeader::epoch)
  // becomes 0 if nobody is there to hear it, so that nobody takes the session over either.
  void goodbye(ipc::Word& serving);
  // A request without an answer: what becomes of it is not told. It must do no harm if it is done
  // twice, for another daemon is told it again unless a later call was answered. 0 or EIO.
  int tell(ipc::Request& request);

  // Whether the other end is closed; asks the kernel.
  [[nodiscard]] bool hung_up() const;

 private:
  void say_goodbye(ipc::Word& serving);
  void ask_to_resume(ipc::Request* request) override;
  Taken on_taken(const ipc::Reply& reply, base::Fd socket) override;

  uint32_t session_ = 0;
  std::function<void(base::Fd)> replace_;
  std::atomic<uint32_t> epoch_ = 0;
};

// What the daemon has just made for this process. It is undone there if this is destroyed before
// keep(): something threw.
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
