// The listening session socket of one vdevice: R/netns/<cookie>/<number>.sock.
//
// Anyone who can reach the file may connect; what authorizes is where a connection comes from: a
// peer whose socket was made in another network namespace than the vdevice's is closed before
// anything is read from it or said to it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/acceptor.h"
#include "vrdmad/identity/identity.h"

namespace vrdma::vrdmad {

class SessionSocket {
 public:
  // `accepted` gets each connection from `netns_cookie`; `refused` is called for each other. Both
  // on the loop. A connection whose process has ended or cannot be identified is closed. Nobody is
  // accepted while `account` is crowded.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionSocket>> listen(
      Identity& identity, Intake::AccountRef account, base::EventLoop& loop,
      const std::string& path, uint64_t netns_cookie, std::function<void(Arrival)> accepted,
      std::function<void()> refused);
  ~SessionSocket();  // the path goes too
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

 private:
  SessionSocket() = default;
  void admit(Arrival arrival);

  std::string path_;
  Intake::AccountRef account_;
  uint64_t netns_cookie_ = 0;
  std::function<void(Arrival)> accepted_;
  std::function<void()> refused_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace vrdma::vrdmad
