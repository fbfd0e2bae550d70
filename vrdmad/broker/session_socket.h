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
#include "vrdmad/broker/acceptor.h"
#include "vrdmad/broker/identity.h"

namespace vrdma::vrdmad {

class SessionSocket {
 public:
  // Whose it is. All is called on the loop.
  struct Owner {
    Intake::AccountRef account;             // nobody is accepted while it is crowded,
    std::shared_ptr<Entrance> entrance;     // or this is closed
    std::function<void(Arrival)> accepted;  // each connection from the namespace
    std::function<void()> refused;          // for each other, of which nothing else is asked
    // Whether one of the user is wanted; empty: all are. If not, it is closed.
    std::function<bool(uid_t)> wants = {};
  };
  // A connection whose process has ended or cannot be identified is closed.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionSocket>> listen(Identity& identity,
                                                                           base::EventLoop& loop,
                                                                           const std::string& path,
                                                                           uint64_t netns_cookie,
                                                                           Owner owner);
  ~SessionSocket();  // the path goes too
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

 private:
  SessionSocket() = default;
  [[nodiscard]] base::Duration closed_for() const;
  [[nodiscard]] bool wants(base::Fd& client);

  std::string path_;
  uint64_t netns_cookie_ = 0;
  Owner owner_;
  Intake::AccountRef foreign_;  // of connections from other namespaces, which are not the owner's
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace vrdma::vrdmad
