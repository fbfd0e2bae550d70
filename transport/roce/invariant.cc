#include "transport/roce/invariant.h"

#include <cstring>

#include "core/wire/ip.h"

namespace vrdma::transport::roce {

wire::Icrc begin_icrc(const verbs::Gid& source, const verbs::Gid& destination, uint16_t source_port,
                      size_t size, uint16_t id, const uint8_t* bth) {
  constexpr uint16_t kDontFragment = 0x4000;
  const size_t datagram = sizeof(wire::UdpHeader) + size;
  const wire::UdpHeader udp{source_port, wire::kRocePort, static_cast<uint16_t>(datagram), 0};
  wire::Bth header;
  std::memcpy(&header, bth, sizeof header);
  if (!source.is_ipv4_mapped()) {
    wire::Ipv6Header ip{};
    ip.version_class_label = 6u << 28;
    ip.payload_length = static_cast<uint16_t>(datagram);
    ip.next_header = wire::kProtocolUdp;
    std::memcpy(ip.source, source.bytes.data(), sizeof ip.source);
    std::memcpy(ip.destination, destination.bytes.data(), sizeof ip.destination);
    return {ip, udp, header};
  }
  wire::Ipv4Header ip{};
  ip.version_and_words = wire::kIpv4NoOptions;
  ip.total_length = static_cast<uint16_t>(sizeof ip + datagram);
  ip.id = id;
  ip.fragment = kDontFragment;
  ip.protocol = wire::kProtocolUdp;
  std::memcpy(ip.source, source.bytes.data() + 12, sizeof ip.source);
  std::memcpy(ip.destination, destination.bytes.data() + 12, sizeof ip.destination);
  return {ip, udp, header};
}

}  // namespace vrdma::transport::roce
