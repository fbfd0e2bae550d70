#include "vrdmad/broker/session_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "core/base/netns_cookie.h"

namespace vrdma::vrdmad {

using base::Fd;

namespace {

// Pause while the account is crowded.
constexpr std::chrono::milliseconds kCrowded(50);
// Unfinished orders for connections from other namespaces; each holds a descriptor. Beyond this
// number, nothing is accepted.
constexpr unsigned kMostForeign = 256;

// The uid of the client, as the kernel recorded it at connect(2).
uid_t user_of(const Fd& client) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = ::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known ? peer.uid : ~uid_t{0};
}

}  // namespace

base::Result<std::unique_ptr<SessionSocket>> SessionSocket::listen(Identity& identity,
                                                                   base::EventLoop& loop,
                                                                   const std::string& path,
                                                                   uint64_t netns_cookie,
                                                                   Owner owner) {
  std::unique_ptr<SessionSocket> socket(new SessionSocket);
  socket->netns_cookie_ = netns_cookie;
  socket->owner_ = std::move(owner);
  socket->foreign_ = std::make_shared<Intake::Account>(socket->owner_.account->intake());
  Reception reception;
  reception.netns = netns_cookie;
  reception.closed_for = [raw = socket.get()] { return raw->closed_for(); };
  reception.wants = [raw = socket.get()](Fd& client) { return raw->wants(client); };
  reception.accepted = [raw = socket.get()](Arrival arrival) {
    arrival.account = raw->owner_.account;
    arrival.entrance = raw->owner_.entrance;
    raw->owner_.accepted(std::move(arrival));
  };
  reception.lost = [raw = socket.get()](Fd client) {
    close_connection(raw->owner_.account, std::move(client));
  };
  auto acceptor = identity.listen(loop, path, std::move(reception));
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
  return owner_.entrance->closed_for(base::EventLoop::now());
}

// Connections from other namespaces are charged neither to the owner's account nor to its rate.
bool SessionSocket::wants(Fd& client) {
  const auto cookie = base::netns_cookie(client.get());
  const bool ours = cookie && *cookie == netns_cookie_;
  if (ours) owner_.entrance->entered(base::EventLoop::now());
  if (ours && (!owner_.wants || owner_.wants(user_of(client)))) return true;
  close_connection(ours ? owner_.account : foreign_, std::move(client));
  if (!ours) owner_.refused();
  return false;
}

}  // namespace vrdma::vrdmad
