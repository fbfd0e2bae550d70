#include "transport/roce/outgoing.h"

#include <netinet/udp.h>

#include <cstring>

#include "transport/roce/invariant.h"

namespace vrdma::transport::roce {

namespace {

constexpr uint8_t kDefaultHops = 64;

bool is_one_way(const NetworkHeader& a, const NetworkHeader& b) {
  return a.destination == b.destination && a.source == b.source &&
         a.traffic_class == b.traffic_class && a.hop_limit == b.hop_limit;
}

}  // namespace

Outgoing::Outgoing() {
  to_.reserve(kMost);  // messages point into it
}

void Outgoing::clear() {
  count_ = total_ = pieces_used_ = 0;
  used_ = 0;
  open_ = false;
  to_.clear();
  kept_.clear();
}

uint32_t Outgoing::add(const net::Burst& burst, uint32_t first, const NetworkHeader& way,
                       uint32_t ifindex, bool segments) {
  uint32_t at = first;
  while (at < burst.count && add(burst.packets[at], way, ifindex, segments)) ++at;
  if (at > first && burst.bytes != nullptr) kept_.push_back(burst.bytes);
  return at - first;
}

bool Outgoing::add(const wire::Packet& packet, const Course& course, uint32_t ifindex,
                   bool segments) {
  if (total_ == kMost) return false;
  const size_t size = wire::packet_bytes(packet);
  if (!segments || !continues(size, course.way)) {
    begin_message(size, course.way, course.port, ifindex);
  } else if (packets_[count_ - 1] == 1) {
    const auto segment = static_cast<uint16_t>(segment_);
    put_option(SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  }
  put_packet(packet, course.seen);
  ++packets_[count_ - 1];
  ++total_;
  bytes_ += size;
  open_ = size == segment_;
  return true;
}

bool Outgoing::continues(size_t size, const NetworkHeader& way) const {
  return open_ && size <= segment_ && packets_[count_ - 1] < kMostSegments &&
         bytes_ + size <= kMostBytes && is_one_way(way, way_);
}

void Outgoing::begin_message(size_t size, const NetworkHeader& way, uint16_t port,
                             uint32_t ifindex) {
  way_ = way;
  segment_ = size;
  bytes_ = 0;
  verbs::SocketAddress& to = to_.emplace_back(way.destination, port, ifindex);
  msghdr& message = messages_[count_].msg_hdr;
  message = {};
  message.msg_name = &to.ipv6;
  message.msg_namelen = to.size;
  message.msg_iov = &pieces_[pieces_used_];
  packets_[count_++] = 0;
  const bool ipv4 = way.source.is_ipv4_mapped();
  const int traffic_class = way.traffic_class, hops = way.hop_limit;
  if (traffic_class != 0)
    put_option(ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, &traffic_class,
               sizeof traffic_class);
  if (hops != 0 && hops != kDefaultHops)
    put_option(ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hops, sizeof hops);
}

void Outgoing::put_option(int level, int type, const void* value, size_t size) {
  msghdr& message = messages_[count_ - 1].msg_hdr;
  message.msg_control = control_[count_ - 1].bytes.data();
  auto* const header =
      reinterpret_cast<cmsghdr*>(control_[count_ - 1].bytes.data() + message.msg_controllen);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), value, size);
  message.msg_controllen += CMSG_SPACE(size);
}

void Outgoing::put_packet(const wire::Packet& packet, const NetworkHeader& seen) {
  uint8_t* const begin = &room_[used_];
  uint8_t* end = begin + wire::encode(packet, begin);
  const auto id = static_cast<uint16_t>(packets_[count_ - 1]);
  wire::Icrc icrc = begin_icrc(seen.source, seen.destination, source_port_,
                               wire::packet_bytes(packet), id, begin);
  const uint8_t* added = begin + sizeof(wire::Bth);  // what the ICRC has not seen yet
  const uint8_t* put = begin;                        // what the message does not have yet
  if (packet.payload_length <= kShort) {
    if (packet.payload_length > 0) std::memcpy(end, packet.payload, packet.payload_length);
    end += packet.payload_length;
  } else {
    icrc.add(added, static_cast<size_t>(end - added));
    icrc.add(packet.payload, packet.payload_length);
    put_bytes(begin, static_cast<size_t>(end - begin));
    put_bytes(packet.payload, packet.payload_length);
    added = put = end;
  }
  const size_t pad = wire::pad_bytes(packet.payload_length);
  std::memset(end, 0, pad);
  end += pad;
  icrc.add(added, static_cast<size_t>(end - added));
  icrc.write(end);
  end += wire::kIcrcBytes;
  put_bytes(put, static_cast<size_t>(end - put));
  used_ += static_cast<size_t>(end - begin);
}

// Pieces of a message that are neighbours are one.
void Outgoing::put_bytes(const uint8_t* bytes, size_t size) {
  msghdr& message = messages_[count_ - 1].msg_hdr;
  if (message.msg_iovlen > 0) {
    iovec& last = pieces_[pieces_used_ - 1];
    if (static_cast<const uint8_t*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += size;
      return;
    }
  }
  pieces_[pieces_used_++] = {const_cast<uint8_t*>(bytes), size};
  ++message.msg_iovlen;
}

}  // namespace vrdma::transport::roce
