// Datagram sockets over RDMA: lifetime, addresses, peers and sleeping.
#include "client/rsocket/datagram.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <cstring>

namespace vrdma::client {

namespace {

constexpr timeval kLeaveLimit{5, 0};

const sockaddr* as_sockaddr(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

RsAddress name_of(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  return RsAddress::from(as_sockaddr(name)).value_or(RsAddress{});
}

}  // namespace

bool RDatagram::Destination::is_current(Clock::time_point now) const {
  return endpoint != nullptr && !endpoint->is_broken() && qpn != 0 &&
         now - std::max(heard, asked) < kTrust;
}

// ---- life ---------------------------------------------------------------------------------------

int RDatagram::open() {
  if (const int error = RSocket::open(); error != 0) return error;
  udp_ = base::Fd(::socket(domain_, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!udp_.valid()) return -errno;
  // The answer to a peer must come from the local address that the peer used.
  const int on = 1;
  const bool four = domain_ == AF_INET;
  if (::setsockopt(udp_.get(), four ? int{IPPROTO_IP} : int{IPPROTO_IPV6},
                   four ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof on) != 0)
    return -errno;
  return watch(udp_.get());
}

RDatagram::~RDatagram() {
  forget_peers();
  arrived_.clear();
  endpoints_.clear();
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

// The channel reports the end of the daemon and of the vdevice.
int RDatagram::open_channel() {
  const int error = RSocket::open_channel();
  return error == -ENODEV ? -ENETUNREACH : error;
}

RsAddress RDatagram::own_address() const { return name_of(udp_.get()); }

int RDatagram::take_port() {
  if (port_ != 0) return 0;
  RsAddress any;
  const sockaddr_storage address = any.to(domain_);
  if (::bind(udp_.get(), as_sockaddr(address), RsAddress::size(domain_)) != 0) return -errno;
  port_ = own_address().port;
  return 0;
}

int RDatagram::bind(const sockaddr* address) {
  const Lock lock(mutex_);
  if (port_ != 0) return -EINVAL;
  if (address->sa_family != domain_) return -EAFNOSUPPORT;
  const auto local = RsAddress::from(address);
  if (!local || local->is_multicast() || local->is_loopback()) return -EADDRNOTAVAIL;
  if (const int error = open_channel(); error != 0) return error;
  if (!local->is_any()) {
    std::shared_ptr<RsEndpoint> endpoint;
    const int error = endpoint_at(*local, &endpoint);
    if (error != 0) return error == -ENODEV ? -EADDRNOTAVAIL : error;
  }
  if (::bind(udp_.get(), address, RsAddress::size(domain_)) != 0) return -errno;
  port_ = own_address().port;
  return 0;
}

int RDatagram::connect(const sockaddr* address) {
  const Lock lock(mutex_);
  if (address->sa_family == AF_UNSPEC) return disconnect();
  RsAddress peer;
  if (const int error = to_peer(address, &peer); error != 0) return error;
  if (const int error = take_port(); error != 0) return error;
  const sockaddr_storage to = peer.to(domain_);
  if (::connect(udp_.get(), as_sockaddr(to), RsAddress::size(domain_)) != 0) return -errno;
  Destination* destination = nullptr;
  if (const int error = reach(peer, &destination); error != 0) {
    (void)disconnect();
    return error;
  }
  peer_ = peer;
  return 0;
}

int RDatagram::disconnect() {
  look();
  const sockaddr nobody{};
  if (::connect(udp_.get(), &nobody, sizeof nobody) != 0) return -errno;
  peer_.reset();
  // The kernel released a port that the program did not choose, and peers must learn the next one.
  // Drops answers to the old port that arrived since look(), because they prove nothing about the
  // new one.
  port_ = own_address().port;
  if (port_ == 0) {
    char byte;
    while (::recv(udp_.get(), &byte, sizeof byte, MSG_DONTWAIT) >= 0) continue;
    forget_peers();
  }
  return 0;
}

// As in Linux for UDP: without a peer it fails, but still takes effect and wakes sleeping threads.
int RDatagram::shutdown(int how) {
  const Lock lock(mutex_);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return -EINVAL;
  if (how != SHUT_WR) reads_ = false;
  if (how != SHUT_RD) writes_ = false;
  nudge();
  return peer_ ? 0 : -ENOTCONN;
}

void RDatagram::close() {
  Lock lock(mutex_);
  closed_ = true;
  nudge();
  const auto all_sent = [&] {
    return end_ != 0 || std::all_of(endpoints_.begin(), endpoints_.end(),
                                    [](const auto& each) { return each->all_sent(); });
  };
  (void)wait(lock, false, kLeaveLimit, all_sent, Signals::kPass);
  // Frees the port now, even if another thread is still in a call.
  const base::Fd fresh(::socket(domain_, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fresh.valid()) (void)::dup3(fresh.get(), udp_.get(), O_CLOEXEC);
}

int RDatagram::name(bool of_peer, sockaddr* address, socklen_t* length) {
  const auto get = of_peer ? ::getpeername : ::getsockname;
  return get(udp_.get(), address, length) == 0 ? 0 : -errno;
}

// Also applied to the kernel's socket, which is the one that is bound.
int RDatagram::apply_option(int level, int name, int value) {
  if (::setsockopt(udp_.get(), level, name, &value, sizeof value) != 0) return -errno;
  kept_[{level, name}] = value;
  return 0;
}

// ---- endpoints and peers ------------------------------------------------------------------------

RsEndpoint::Sizes RDatagram::sizes() const {
  return {send_size_, receive_size_, send_depth_, receive_depth_, inline_};
}

// The local address from which the kernel sends to that peer.
int RDatagram::local_for(const RsAddress& peer, RsAddress* local) const {
  *local = own_address();
  if (!local->is_any()) return 0;
  const base::Fd probe(::socket(domain_, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return -errno;
  const sockaddr_storage to = peer.to(domain_);
  if (::connect(probe.get(), as_sockaddr(to), RsAddress::size(domain_)) != 0) return -errno;
  *local = name_of(probe.get());
  return 0;
}

int RDatagram::endpoint_at(const RsAddress& local, std::shared_ptr<RsEndpoint>* found) {
  for (const auto& endpoint : endpoints_) {
    const RsAddress& its = endpoint->address();
    if (endpoint->is_broken() || its.gid != local.gid || its.scope != local.scope) continue;
    *found = endpoint;
    return 0;
  }
  if (local.is_loopback()) return -ENODEV;
  if (const int error = open_channel(); error != 0) return error;
  std::unique_ptr<RsEndpoint> made;
  if (const int error = RsEndpoint::make(channel_, local, sizes(), &made); error != 0) return error;
  if (const int error = watch(made->completion_fd()); error != 0) return error;
  *found = endpoints_.emplace_back(std::move(made));
  // A thread that sleeps already must see its completions too.
  if (sleepers_ > 0) endpoints_.back()->arm();
  return 0;
}

// Peers are asked again and thereby learn the new address.
void RDatagram::forget_peers() {
  peers_.clear();
  strangers_.clear();
}

// Finds or creates a destination with an endpoint.
int RDatagram::reach(const RsAddress& peer, Destination** found) {
  Destination* destination = peers_.use(peer);
  if (destination == nullptr)
    destination = peers_.add(peer, strangers_.take(peer).value_or(Destination{}));
  if (destination->endpoint == nullptr || destination->endpoint->is_broken()) {
    destination->handle.reset();
    destination->asked = destination->heard = {};  // the peer does not know the new queue pair
    RsAddress local;
    int error = local_for(peer, &local);
    if (error == 0) error = endpoint_at(local, &destination->endpoint);
    if (error != 0) {
      (void)peers_.take(peer);
      return error == -ENODEV || error == -EADDRNOTAVAIL ? -ENETUNREACH : error;
    }
  }
  *found = destination;
  return 0;
}

// Replaces an endpoint in an error. Destinations are asked again and thereby learn the new QPN;
// other peers ask when they hear nothing.
void RDatagram::mend() {
  const auto is_broken = [](const auto& endpoint) { return endpoint->is_broken(); };
  const auto it = std::find_if(endpoints_.begin(), endpoints_.end(), is_broken);
  if (it == endpoints_.end() || end_ != 0 || closed_) return;
  const std::shared_ptr<RsEndpoint> broken = *it;
  unwatch(broken->completion_fd());
  endpoints_.erase(it);
  forget_peers();
  const auto now = Clock::now();
  const bool again = now - mended_ < kTrust;
  mended_ = now;
  std::shared_ptr<RsEndpoint> made;
  if (again || endpoint_at(broken->address(), &made) != 0) end(ENETDOWN);
}

// ---- sleeping -----------------------------------------------------------------------------------

void RDatagram::process() {
  const auto now = Clock::now();
  bool moved = false, broken = false;
  for (const auto& endpoint : endpoints_) {
    moved |= endpoint->poll(
        [&](const RsEndpoint::Arrival& arrival) { on_arrival(endpoint, arrival, now); });
    broken |= endpoint->is_broken();
  }
  if (broken) mend();
  if (moved) nudge();
  if (now - looked_ >= kLookEvery) look();
}

void RDatagram::take_events() {
  look();
  if (channel_ == nullptr || end_ != 0) return;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    const bool gone = event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
    rdma_ack_cm_event(event);
    if (gone) end(ENETDOWN);
  }
  if (errno == EAGAIN || errno == EINTR) return;
  unwatch(channel_->fd);  // the daemon ended
  end(ENETDOWN);
}

void RDatagram::arm() {
  for (const auto& endpoint : endpoints_) endpoint->arm();
  process();
}

void RDatagram::disarm() {
  for (const auto& endpoint : endpoints_) endpoint->disarm();
}

short RDatagram::events_now(short events) {
  int now = 0;
  if (!arrived_.empty() || !reads_ || error_ != 0 || end_ != 0) now |= POLLIN | POLLRDNORM;
  if (can_send() || !writes_ || error_ != 0 || end_ != 0) now |= POLLOUT | POLLWRNORM;
  if (!reads_) now |= POLLRDHUP;
  if (!reads_ && !writes_) now |= POLLHUP;
  if (error_ != 0 || end_ != 0) now |= POLLERR;
  return static_cast<short>(now & (events | POLLERR | POLLHUP));
}

}  // namespace vrdma::client
