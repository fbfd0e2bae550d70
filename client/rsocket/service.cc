// Datagram sockets over RDMA: the service messages by UDP that exchange QPNs.
#include <netinet/in.h>

#include <cstring>

#include "client/rsocket/datagram.h"

namespace vrdma::client {

namespace {

// Fits a message of the longest MTU with its header.
constexpr size_t kRoom = 8192;
constexpr size_t kControlRoom = CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(in_pktinfo));

struct Control {
  alignas(cmsghdr) std::array<uint8_t, kControlRoom> bytes{};
};

// The local address that received the message. Nothing if the kernel does not report it.
std::optional<RsAddress> local_of(msghdr& message) {
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level == IPPROTO_IP && each->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(each), sizeof info);
      sockaddr_in in{};
      in.sin_family = AF_INET;
      in.sin_addr = info.ipi_spec_dst;
      return RsAddress::from(reinterpret_cast<sockaddr*>(&in));
    }
    if (each->cmsg_level == IPPROTO_IPV6 && each->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(each), sizeof info);
      sockaddr_in6 in6{};
      in6.sin6_family = AF_INET6;
      in6.sin6_addr = info.ipi6_addr;
      in6.sin6_scope_id = info.ipi6_ifindex;
      return RsAddress::from(reinterpret_cast<sockaddr*>(&in6));
    }
  }
  return std::nullopt;
}

template <class Info>
void put_control(msghdr* message, int level, int type, const Info& info) {
  message->msg_controllen = CMSG_SPACE(sizeof info);
  cmsghdr* const header = CMSG_FIRSTHDR(message);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
}

void set_source(msghdr* message, int domain, const RsAddress& source) {
  if (domain == AF_INET) {
    in_pktinfo info{};
    std::memcpy(&info.ipi_spec_dst, source.gid.data() + 12, sizeof info.ipi_spec_dst);
    put_control(message, IPPROTO_IP, IP_PKTINFO, info);
    return;
  }
  in6_pktinfo info{};
  std::memcpy(&info.ipi6_addr, source.gid.data(), sizeof info.ipi6_addr);
  info.ipi6_ifindex = source.scope;
  put_control(message, IPPROTO_IPV6, IPV6_PKTINFO, info);
}

}  // namespace

// A message that cannot be sent now is lost, as with UDP.
int RDatagram::tell(const RsAddress& peer, const RsEndpoint& from, RsService::Kind kind,
                    const iovec* what, size_t count) {
  std::array<uint8_t, RsService::kLongest> header;
  std::vector<iovec> pieces(1);
  pieces[0] = {header.data(), RsService::encode(kind, from.qpn(), from.address(), header.data())};
  pieces.insert(pieces.end(), what, what + count);
  sockaddr_storage to = peer.to(domain_);
  Control control;
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = RsAddress::size(domain_);
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  set_source(&message, domain_, from.address());
  if (::sendmsg(udp_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
  return errno == EAGAIN || errno == ENOBUFS || errno == EINTR ? 0 : -errno;
}

void RDatagram::look() {
  looked_ = Clock::now();
  for (int i = 0; i < kLookAtOnce; ++i) {
    std::array<uint8_t, kRoom> bytes;
    sockaddr_storage from{};
    Control control;
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t got = ::recvmsg(udp_.get(), &message, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      error_ = errno;  // caused by an earlier message to the peer, such as ECONNREFUSED
      nudge();
      continue;
    }
    const auto source = RsAddress::from(reinterpret_cast<sockaddr*>(&from));
    const auto local = local_of(message);
    if (source && local && source->port != 0 && (message.msg_flags & MSG_TRUNC) == 0)
      on_service(*source, *local, std::span(bytes).first(static_cast<size_t>(got)));
  }
}

void RDatagram::on_service(const RsAddress& source, const RsAddress& local,
                           std::span<const uint8_t> bytes) {
  const auto service = RsService::decode(bytes);
  if (!service || end_ != 0 || closed_ || (peer_ && *peer_ != source)) return;
  const auto now = Clock::now();
  if (service->kind == RsService::Kind::kAnswer) {
    // Ignores an answer without a question.
    Destination* const asked = peers_.use(source);
    if (asked == nullptr) return;
    asked->qpn = service->qpn;
    asked->heard = now;
    return;
  }
  // For an address without a vdevice, limits requests to the daemon to one in kTrust.
  if (local == refused_ && now - refused_at_ < kTrust) return;
  std::shared_ptr<RsEndpoint> endpoint;
  if (endpoint_at(local, &endpoint) != 0) {
    refused_ = local;
    refused_at_ = Clock::now();
    return;
  }
  Destination* sender = find(source);
  if (sender == nullptr) sender = strangers_.add(source, Destination{});
  if (sender->endpoint != endpoint) {
    sender->handle.reset();
    sender->endpoint = endpoint;
  }
  sender->qpn = service->qpn;
  sender->heard = now;
  (void)tell(source, *endpoint, RsService::Kind::kAnswer, nullptr, 0);
  hold(source, bytes.subspan(service->size));
}

void RDatagram::hold(const RsAddress& source, std::span<const uint8_t> bytes) {
  if (held_ == kMostHeld || !reads_) return;
  Message message;
  message.source = source;
  message.copy.assign(bytes.begin(), bytes.end());
  message.bytes = message.copy;
  arrived_.push_back(std::move(message));
  ++held_;
  nudge();
}

}  // namespace vrdma::client
