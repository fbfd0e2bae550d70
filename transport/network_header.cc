#include "transport/network_header.h"

#include <cstring>

#include "core/wire/ip.h"

namespace vrdma::transport {

namespace {
constexpr uint32_t kUdpBthDethIcrc = 8 + 12 + 8 + 4;
constexpr uint8_t kDefaultHopLimit = 64;
}  // namespace

uint8_t NetworkHeader::kind() const {
  constexpr uint8_t kUdp = 8, kIpv6 = 1, kIpv4 = 2;
  return kUdp | (source.is_ipv4_mapped() ? kIpv4 : kIpv6);
}

void NetworkHeader::write(uint8_t* out, size_t payload) const {
  const auto length = static_cast<uint16_t>(payload + kUdpBthDethIcrc);
  const uint8_t hops = hop_limit != 0 ? hop_limit : kDefaultHopLimit;
  if (source.is_ipv4_mapped()) {
    std::memset(out, 0, wire::kIpv4InGrh);
    wire::Ipv4Header header{};
    header.version_and_words = wire::kIpv4NoOptions;
    header.tos = traffic_class;
    header.total_length = static_cast<uint16_t>(length + sizeof header);
    header.ttl = hops;
    header.protocol = wire::kProtocolUdp;
    std::memcpy(header.source, source.bytes.data() + 12, 4);
    std::memcpy(header.destination, destination.bytes.data() + 12, 4);
    header.checksum = static_cast<uint16_t>(~wire::sum(header));
    std::memcpy(out + wire::kIpv4InGrh, &header, sizeof header);
    return;
  }
  wire::Ipv6Header header{};
  header.version_class_label =
      6u << 28 | static_cast<uint32_t>(traffic_class) << 20 | (flow_label & 0xfffff);
  header.payload_length = length;
  header.next_header = wire::kProtocolUdp;
  header.hop_limit = hops;
  std::memcpy(header.source, source.bytes.data(), 16);
  std::memcpy(header.destination, destination.bytes.data(), 16);
  std::memcpy(out, &header, sizeof header);
}

}  // namespace vrdma::transport
