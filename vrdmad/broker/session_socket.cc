#include "vrdmad/broker/session_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace vrdma::vrdmad {

using base::Fd;

namespace {

// Pause while the account is crowded.
constexpr std::chrono::milliseconds kCrowded(50);
// Unfinished orders for connections from other namespaces; each holds a descriptor. Beyond this
// number, nothing is accepted.
constexpr unsigned kMostForeign = 256;

}  // namespace

base::Result<std::unique_ptr<SessionSocket>> SessionSocket::listen(Broker& broker,
                                                                   base::EventLoop& loop,
                                                                   const std::string& path,
                                                                   uint64_t netns_cookie,
                                                                   Owner owner) {
  std::unique_ptr<SessionSocket> socket(new SessionSocket);
  socket->owner_ = std::move(owner);
  socket->foreign_ = std::make_shared<Intake::Account>(socket->owner_.account->intake());
  Reception reception;
  reception.closed_for = [raw = socket.get()] { return raw->closed_for(); };
  reception.arrived = [entrance = socket->owner_.entrance] {
    entrance->entered(base::Clock::steady().now());
  };
  reception.wants = socket->owner_.wants;
  reception.recipient = socket->owner_.recipient;
  reception.accepted = [raw = socket.get()](Arrival arrival) {
    arrival.account = raw->owner_.account;
    arrival.entrance = raw->owner_.entrance;
    raw->owner_.accepted(std::move(arrival));
  };
  // Charged neither to the owner's account nor to its rate.
  reception.foreign = [raw = socket.get()](Fd client) {
    close_connection(raw->foreign_, std::move(client));
    raw->owner_.refused();
  };
  reception.lost = [raw = socket.get()](Fd client) {
    close_connection(raw->owner_.account, std::move(client));
  };
  auto acceptor = broker.listen(loop, path, netns_cookie, std::move(reception));
  if (!acceptor) return base::pass(std::move(acceptor.error()));
  socket->path_ = path;
  socket->acceptor_ = std::move(*acceptor);
  return socket;
}

SessionSocket::~SessionSocket() {
  if (acceptor_ != nullptr) {
    // Nothing more is accepted. Waiting clients may have sent messages with descriptors.
    const Fd listener = acceptor_->stop();
    ::shutdown(listener.get(), SHUT_RDWR);
    for (;;) {
      Fd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) break;
      close_connection(owner_.account, std::move(client));
    }
  }
  if (!path_.empty()) ::unlink(path_.c_str());
}

base::Duration SessionSocket::closed_for() const {
  if (owner_.account->crowded() || foreign_->unfinished() >= kMostForeign) return kCrowded;
  return owner_.entrance->closed_for(base::Clock::steady().now());
}

}  // namespace vrdma::vrdmad
