#include "transport/roce/outgoing.h"

#include <netinet/udp.h>

#include <cstring>

#include "transport/roce/invariant.h"

namespace vrdma::transport::roce {

namespace {

constexpr uint8_t kDefaultHops = 64;

void put_option(msghdr& message, size_t* used, int level, int type, const void* value,
                size_t size) {
  auto* const header =
      reinterpret_cast<cmsghdr*>(static_cast<uint8_t*>(message.msg_control) + *used);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), value, size);
  *used += CMSG_SPACE(size);
}

}  // namespace

void Outgoing::fill(const net::Burst& burst, const NetworkHeader& way, uint32_t ifindex,
                    bool segments) {
  to_ = verbs::SocketAddress(way.destination, wire::kRocePort, ifindex);
  count_ = 0;
  for (uint32_t i = 0; i < burst.count;) {
    const size_t size = wire::packet_bytes(burst.packets[i]);
    size_t bytes = size;
    uint32_t end = i + 1;
    for (bool full = true; segments && full && end < burst.count && end - i < kMostSegments;
         ++end) {
      const size_t next = wire::packet_bytes(burst.packets[end]);
      if (next > size || bytes + next > kMostBytes) break;
      bytes += next;
      full = next == size;
    }
    put_message(i, end - i, size, way);
    for (uint16_t id = 0; i < end; ++i, ++id) put_packet(burst.packets[i], i, id, way);
  }
}

void Outgoing::fill(const wire::Packet& packet, const NetworkHeader& way, uint32_t ifindex) {
  to_ = verbs::SocketAddress(way.destination, wire::kRocePort, ifindex);
  count_ = 0;
  put_message(0, 1, 0, way);
  put_packet(packet, 0, 0, way);
}

void Outgoing::put_message(uint32_t index, uint32_t count, size_t segment,
                           const NetworkHeader& way) {
  mmsghdr& message = messages_[count_];
  message = {};
  message.msg_hdr.msg_name = &to_.ipv6;
  message.msg_hdr.msg_namelen = to_.size;
  message.msg_hdr.msg_iov = pieces_[index].data();
  message.msg_hdr.msg_iovlen = size_t{3} * count;
  packets_[count_] = count;
  put_control(message.msg_hdr, way, count > 1 ? static_cast<uint16_t>(segment) : 0);
  ++count_;
}

void Outgoing::put_packet(const wire::Packet& packet, uint32_t index, uint16_t id,
                          const NetworkHeader& way) {
  Edge& edge = edges_[index];
  const size_t headers = wire::encode(packet, edge.headers);
  const size_t pad = wire::pad_bytes(packet.payload_length);
  std::memset(edge.trailer, 0, pad);
  wire::Icrc icrc = begin_icrc(way.source, way.destination, wire::kRocePort,
                               wire::packet_bytes(packet), id, edge.headers);
  icrc.add(edge.headers + sizeof(wire::Bth), headers - sizeof(wire::Bth));
  icrc.add(packet.payload, packet.payload_length);
  icrc.add(edge.trailer, pad);
  icrc.write(edge.trailer + pad);
  pieces_[index] = {iovec{edge.headers, headers},
                    iovec{const_cast<uint8_t*>(packet.payload), packet.payload_length},
                    iovec{edge.trailer, pad + wire::kIcrcBytes}};
}

void Outgoing::put_control(msghdr& message, const NetworkHeader& way, uint16_t segment) {
  message.msg_control = control_[count_].bytes.data();
  size_t used = 0;
  const bool ipv4 = way.source.is_ipv4_mapped();
  const int traffic_class = way.traffic_class, hops = way.hop_limit;
  if (segment != 0) put_option(message, &used, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);
  if (traffic_class != 0)
    put_option(message, &used, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
               &traffic_class, sizeof traffic_class);
  if (hops != 0 && hops != kDefaultHops)
    put_option(message, &used, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT,
               &hops, sizeof hops);
  message.msg_controllen = used;
  if (used == 0) message.msg_control = nullptr;
}

}  // namespace vrdma::transport::roce
