// Datagram sockets over RDMA: sending and receiving messages.
#include <cstring>
#include <numeric>

#include "client/rsocket/datagram.h"

namespace vrdma::client {

namespace {

size_t total(const iovec* pieces, size_t count) {
  return std::accumulate(pieces, pieces + count, size_t{0},
                         [](size_t sum, const iovec& piece) { return sum + piece.iov_len; });
}

size_t scatter(std::span<const uint8_t> from, const iovec* to, size_t count) {
  size_t done = 0;
  for (size_t i = 0; i < count && done < from.size(); ++i) {
    const size_t step = std::min(to[i].iov_len, from.size() - done);
    if (step > 0) std::memcpy(to[i].iov_base, from.data() + done, step);
    done += step;
  }
  return done;
}

}  // namespace

// The errno that ends both directions; 0: none.
int RDatagram::refusal() {
  if (closed_) return -EBADF;
  if (error_ != 0) return -std::exchange(error_, 0);
  return -end_;
}

bool RDatagram::can_send() const {
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const auto& endpoint) { return endpoint->can_send(); });
}

int RDatagram::to_peer(const sockaddr* to, RsAddress* peer) const {
  const auto address = RsAddress::from(to);
  if (!address || (domain_ == AF_INET && to->sa_family != AF_INET)) return -EAFNOSUPPORT;
  if (address->port == 0) return -EINVAL;
  if (address->is_multicast() || address->is_loopback()) return -ENETUNREACH;
  *peer = *address;
  return 0;
}

RDatagram::Destination* RDatagram::find(const RsAddress& peer) {
  Destination* const known = peers_.use(peer);
  return known != nullptr ? known : strangers_.use(peer);
}

// Rejects forged senders: the address must equal that of the network header. The port is accepted
// unless another queue pair is known for it.
void RDatagram::on_arrival(const std::shared_ptr<RsEndpoint>& endpoint,
                           const RsEndpoint::Arrival& arrival, Clock::time_point now) {
  const auto take = [&] {
    auto header = RsHeader::decode(arrival.bytes);
    if (!header || header->source.gid != arrival.gid) return false;
    header->source.scope = endpoint->address().scope;
    if (peer_ && *peer_ != header->source) return false;
    if (Destination* known = find(header->source); known != nullptr) {
      if (known->qpn != 0 && known->qpn != arrival.qpn) return false;
      known->heard = now;
    }
    if (!reads_ || closed_) return false;
    Message message;
    message.source = header->source;
    message.endpoint = endpoint;
    message.slot = arrival.slot;
    message.bytes = arrival.bytes.subspan(header->size);
    arrived_.push_back(std::move(message));
    return true;
  };
  if (!take()) endpoint->give_back(arrival.slot);
}

ssize_t RDatagram::receive(const iovec* to, size_t count, int flags, RsOrigin* origin) {
  Lock lock(mutex_);
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  if ((flags & MSG_ERRQUEUE) != 0) return -EAGAIN;
  if (const int error = open_channel(); error != 0) return error;
  if (arrived_.empty()) {
    const int error = wait(lock, nonblocking_ || (flags & MSG_DONTWAIT) != 0, receive_limit_, [&] {
      return !arrived_.empty() || !reads_ || closed_ || error_ != 0 || end_ != 0;
    });
    if (error != 0) return error;
  }
  if (const int error = refusal(); error != 0) return error;
  if (arrived_.empty()) return 0;  // shut down
  Message& message = arrived_.front();
  const size_t length = message.bytes.size();
  const size_t copied = scatter(message.bytes, to, count);
  if (origin != nullptr) {
    origin->address = message.source.to(domain_);
    origin->cut = copied < length;
  }
  if ((flags & MSG_PEEK) == 0) {
    if (message.endpoint != nullptr)
      message.endpoint->give_back(message.slot);
    else
      --held_;
    arrived_.pop_front();
  }
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? length : copied);
}

ssize_t RDatagram::send(const iovec* from, size_t count, int flags, const sockaddr* to) {
  Lock lock(mutex_);
  if ((flags & MSG_OOB) != 0) return -EOPNOTSUPP;
  if (!writes_) return -EPIPE;
  if (to == nullptr && !peer_) return -EDESTADDRREQ;
  RsAddress peer;
  if (to == nullptr)
    peer = *peer_;
  else if (const int error = to_peer(to, &peer); error != 0)
    return error;
  if (const int error = take_port(); error != 0) return error;
  const size_t length = total(from, count);
  for (bool looked = false;;) {
    if (const int error = refusal(); error != 0) return error;
    Destination* destination = nullptr;
    if (const int error = reach(peer, &destination); error != 0) return error;
    const std::shared_ptr<RsEndpoint> endpoint = destination->endpoint;
    RsAddress source = endpoint->address();
    source.port = port_;
    if (length > endpoint->longest() - RsHeader::size_for(source)) return -EMSGSIZE;
    const auto now = Clock::now();
    if (!destination->is_current(now)) {
      // The answer may have arrived.
      if (!looked) {
        looked = true;
        look();
        continue;
      }
      destination->asked = now;
      destination->handle.reset();
      const int error = tell(peer, *endpoint, RsService::Kind::kMessage, from, count);
      return error != 0 ? error : static_cast<ssize_t>(length);
    }
    if (!endpoint->can_send()) {
      const int error = wait(lock, nonblocking_ || (flags & MSG_DONTWAIT) != 0, send_limit_, [&] {
        return endpoint->can_send() || endpoint->is_broken() || closed_ || error_ != 0 || end_ != 0;
      });
      if (error != 0) return error;
      continue;
    }
    if (destination->handle == nullptr || now - destination->made >= kTrust) {
      destination->handle = endpoint->handle_for(peer);
      destination->made = now;
    }
    if (destination->handle == nullptr) return -errno;
    std::array<uint8_t, RsHeader::kLongest> header;
    const uint32_t size = RsHeader::encode(source, header.data());
    const int error = endpoint->send(std::span(header).first(size), from, count,
                                     destination->handle.get(), destination->qpn);
    if (error != 0) return error;
    if (now - looked_ >= kLookEvery) process();
    return static_cast<ssize_t>(length);
  }
}

}  // namespace vrdma::client
