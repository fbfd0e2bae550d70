// The listening session socket of one vdevice: R/netns/<cookie>/<number>.sock.
//
// Any process that can reach the file may connect. Its network namespace authorizes it: a
// connection whose socket was made in another namespace than the vdevice's is closed without
// reading from it or answering it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/serve/acceptor.h"
#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

class SessionSocket {
 public:
  // The vdevice that owns the socket. All callbacks run on the loop.
  struct Owner {
    Intake::AccountRef account;             // no connection is accepted while it is crowded,
    std::shared_ptr<Entrance> entrance;     // or while this is closed
    std::function<void(Arrival)> accepted;  // each connection from the namespace
    std::function<void()> refused;  // each connection from another namespace, which is closed
    // Whether to accept a connection of this user; empty: always. Otherwise it is closed.
    std::function<bool(uid_t)> wants = {};
    // As of Reception.
    std::function<Recipient()> recipient = {};
  };
  // Closes a connection whose process has ended or cannot be identified.
  [[nodiscard]] static base::Result<std::unique_ptr<SessionSocket>> listen(Broker& broker,
                                                                           base::EventLoop& loop,
                                                                           const std::string& path,
                                                                           uint64_t netns_cookie,
                                                                           Owner owner);
  ~SessionSocket();  // unlinks the path
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

 private:
  SessionSocket() = default;
  [[nodiscard]] base::Duration closed_for() const;

  std::string path_;
  Owner owner_;
  Intake::AccountRef foreign_;  // of connections from other namespaces
  std::unique_ptr<serve::Acceptor> acceptor_;
};

}  // namespace vrdma::vrdmad
