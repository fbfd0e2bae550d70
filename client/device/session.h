// The program's end of a session socket: requests, answers, and whether the daemon lives.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/messages.h"

namespace vrdma::client {

class Session {
 public:
  // R/netns/<inode of this thread's netns>: where the sockets of its vdevices are. Empty: unknown.
  [[nodiscard]] static std::string directory();
  // Connects to the session socket at `path`. Errors as of connect(2).
  [[nodiscard]] static base::Result<base::Fd> dial(const std::string& path);

  void use(base::Fd socket) { socket_ = std::move(socket); }

  // One request and its answer. 0, or the errno that the daemon answered; EIO if the daemon has
  // gone. File descriptors that come beside the answer go to `received`. Any thread.
  int call(ipc::Request& request, ipc::Reply* reply, const std::vector<int>& sent = {},
           std::vector<base::Fd>* received = nullptr);
  // The same for a request that is nothing but a handle.
  int call(ipc::Call call, uint32_t handle);
  // A request without an answer: what becomes of it is not told. 0 or EIO.
  int tell(ipc::Request& request);

  // Whether the other end is closed; asks the kernel.
  [[nodiscard]] bool hung_up() const;
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  std::mutex mutex_;  // one request at a time
  base::Fd socket_;
  uint32_t sequence_ = 0;
};

}  // namespace vrdma::client
