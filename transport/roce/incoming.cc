#include "transport/roce/incoming.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/verbs/socket_address.h"
#include "transport/roce/invariant.h"

namespace vrdma::transport::roce {

namespace {

// A cmsg of one byte or an int.
int number_in(const cmsghdr& header) {
  if (header.cmsg_len == CMSG_LEN(1)) return *CMSG_DATA(&header);
  int value = 0;
  if (header.cmsg_len == CMSG_LEN(sizeof value))
    std::memcpy(&value, CMSG_DATA(&header), sizeof value);
  return value;
}

}  // namespace

std::optional<uint16_t> check_icrc(const uint8_t* bytes, size_t size, const verbs::Gid& source,
                                   const verbs::Gid& destination, uint16_t source_port,
                                   uint16_t likely_id) {
  const size_t covered = size - wire::kIcrcBytes;
  const uint32_t received = wire::Icrc::read(bytes + covered);
  wire::Icrc icrc = begin_icrc(source, destination, source_port, size, likely_id, bytes);
  icrc.add(bytes + sizeof(wire::Bth), covered - sizeof(wire::Bth));
  const bool ipv4 = source.is_ipv4_mapped();
  if (icrc.value() == received) return ipv4 ? likely_id : uint16_t{0};
  if (!ipv4) return std::nullopt;
  // An identification that fits is found from any other one: two differ by a third.
  const auto third = wire::find_ipv4_id(icrc.value(), received, covered);
  if (!third) return std::nullopt;
  return static_cast<uint16_t>(*third ^ likely_id);
}

Incoming::Incoming() : room_(kMessages * kMessageBytes) {
  for (size_t i = 0; i < kMessages; ++i) {
    pieces_[i] = {room_.data() + i * kMessageBytes, kMessageBytes};
    messages_[i].msg_hdr.msg_iov = &pieces_[i];
    messages_[i].msg_hdr.msg_iovlen = 1;
    messages_[i].msg_hdr.msg_name = &from_[i];
    messages_[i].msg_hdr.msg_control = control_[i].bytes.data();
  }
}

int Incoming::receive(const base::Fd& socket) {
  for (mmsghdr& message : messages_) {
    message.msg_hdr.msg_namelen = sizeof from_[0];
    message.msg_hdr.msg_controllen = sizeof control_[0].bytes;
  }
  received_ = ::recvmmsg(socket.get(), messages_.data(), kMessages, MSG_DONTWAIT, nullptr);
  if (received_ >= 0) return received_;
  received_ = 0;
  return -errno;
}

uint64_t Incoming::bytes() const {
  uint64_t sum = 0;
  for (int i = 0; i < received_; ++i) sum += messages_[static_cast<size_t>(i)].msg_len;
  return sum;
}

Incoming::Message Incoming::open(size_t index, const verbs::Gid& local) const {
  const mmsghdr& received = messages_[index];
  Message message;
  message.bytes = room_.data() + index * kMessageBytes;
  message.left = message.segment = received.msg_len;
  message.source_port = ntohs(from_[index].sin6_port);  // where sin_port is, too
  message.header.source = verbs::gid_of(reinterpret_cast<const sockaddr*>(&from_[index]));
  message.header.destination = local;
  auto* const all = const_cast<msghdr*>(&received.msg_hdr);
  for (cmsghdr* each = CMSG_FIRSTHDR(all); each != nullptr; each = CMSG_NXTHDR(all, each)) {
    const int value = number_in(*each);
    const bool of_ip = each->cmsg_level == IPPROTO_IP, of_ipv6 = each->cmsg_level == IPPROTO_IPV6;
    if ((of_ip && each->cmsg_type == IP_TOS) || (of_ipv6 && each->cmsg_type == IPV6_TCLASS))
      message.header.traffic_class = static_cast<uint8_t>(value);
    else if ((of_ip && each->cmsg_type == IP_TTL) || (of_ipv6 && each->cmsg_type == IPV6_HOPLIMIT))
      message.header.hop_limit = static_cast<uint8_t>(value);
    else if (each->cmsg_level == SOL_UDP && each->cmsg_type == UDP_GRO && value > 0)
      message.segment = static_cast<size_t>(value);
  }
  return message;
}

bool Misfit::fits(const verbs::Gid& source, const verbs::Gid& destination) const {
  if (source.is_ipv4_mapped() != destination.is_ipv4_mapped()) return false;
  // The port may be translated, too.
  for (const uint16_t port : {source_port, wire::kRocePort})
    if (check_icrc(bytes, size, source, destination, port, 0)) return true;
  return false;
}

bool Incoming::next(Message& message, IncomingCounters& counters, wire::Packet* packet) {
  while (message.left > 0) {
    const uint8_t* const bytes = message.packet_bytes = message.bytes;
    const size_t size = message.packet_size = std::min(message.left, message.segment);
    message.bytes += size;
    message.left -= size;
    const uint16_t index = message.index++;  // as Linux numbers segments
    const auto decoded = wire::decode({bytes, size});
    if (!decoded) {
      ++counters.malformed;
      continue;
    }
    const auto id = check_icrc(bytes, size, message.header.source, message.header.destination,
                               message.source_port, index);
    message.fits = id.has_value();
    message.header.ipv4_id = id.value_or(0);
    *packet = *decoded;
    return true;
  }
  return false;
}

}  // namespace vrdma::transport::roce
