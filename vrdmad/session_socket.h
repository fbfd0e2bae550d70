// The listening session socket of one vdevice: R/netns/<inode>/<name>.sock.
//
// Anyone who can reach the file may connect; what authorizes is where a connection comes from: a
// peer whose socket was made in another network namespace than the vdevice's is turned away.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/acceptor.h"

namespace vrdma::vrdmad {

class SessionSocket {
 public:
  // `accepted` gets each connection from `netns_inode`, non-blocking; `refused` is called for each
  // other. Both on the loop.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionSocket>> listen(
      base::EventLoop& loop, const std::string& path, uint64_t netns_inode,
      std::function<void(base::Fd)> accepted, std::function<void()> refused);
  ~SessionSocket();  // the path goes too
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

 private:
  SessionSocket() = default;
  void admit(base::Fd client);

  std::string path_;
  uint64_t netns_inode_ = 0;
  std::function<void(base::Fd)> accepted_;
  std::function<void()> refused_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace vrdma::vrdmad
