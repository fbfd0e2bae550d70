#include "cli/bad_wire/frame.h"

#include <span>

#include "core/wire/ip.h"
#include "core/wire/roce.h"

namespace vrdma::cli::bad_wire {

namespace {

constexpr size_t kEthernet = 14;
constexpr uint16_t kIpv4Type = 0x0800, kIpv6Type = 0x86dd;
constexpr size_t kVariantByte = 4;  // of the BTH: FECN, BECN and reserved bits

template <class T>
T& at(Frame& frame, size_t offset) {
  return *reinterpret_cast<T*>(frame.data() + offset);
}
template <class T>
const T& at(const Frame& frame, size_t offset) {
  return *reinterpret_cast<const T*>(frame.data() + offset);
}

bool is_ipv4(const Frame& frame, const Parts& parts) { return frame[parts.ip] >> 4 == 4; }

// The ones' complement sum of RFC 1071, not yet folded.
uint32_t sum(std::span<const uint8_t> bytes) {
  uint32_t total = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    total += i % 2 == 0 ? uint32_t{bytes[i]} << 8 : uint32_t{bytes[i]};
  return total;
}
uint16_t checksum(uint32_t total) {
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return static_cast<uint16_t>(~total);
}

void put_udp_checksum(Frame& frame, const Parts& parts) {
  auto& udp = at<wire::UdpHeader>(frame, parts.behind);
  if (udp.checksum == 0) return;  // there is none
  udp.checksum = 0;
  const size_t addresses = is_ipv4(frame, parts) ? 8 : 32;
  const std::span all(frame);
  const uint16_t value =
      checksum(sum(all.subspan(parts.behind - addresses, addresses)) + wire::kProtocolUdp +
               udp.length + sum(all.subspan(parts.behind, parts.end - parts.behind)));
  udp.checksum = value == 0 ? uint16_t{0xffff} : value;  // RFC 768
}

}  // namespace

Parts parts_of(const Frame& frame) {
  Parts parts;
  if (frame.size() < kEthernet) return parts;
  const uint16_t type = at<base::ub16>(frame, kEthernet - 2);
  const size_t left = frame.size() - kEthernet;
  uint8_t protocol = 0;
  size_t header = 0, length = 0;
  if (type == kIpv4Type && left >= sizeof(wire::Ipv4Header)) {
    const auto& ip = at<wire::Ipv4Header>(frame, kEthernet);
    header = (ip.version_and_words & 0x0fu) * 4;
    length = ip.total_length;
    protocol = (ip.fragment & 0x3fff) == 0 ? ip.protocol : uint8_t{0};
    if (ip.version_and_words >> 4 != 4 || header < sizeof ip) return parts;
  } else if (type == kIpv6Type && left >= sizeof(wire::Ipv6Header)) {
    const auto& ip = at<wire::Ipv6Header>(frame, kEthernet);
    header = sizeof ip;
    length = sizeof ip + ip.payload_length;
    protocol = ip.next_header;
    if (ip.version_class_label >> 28 != 6) return parts;
  }
  if (header == 0 || header > length || length > left) return parts;
  parts.ip = kEthernet;
  parts.behind = kEthernet + header;
  parts.end = kEthernet + length;
  if (protocol != wire::kProtocolUdp || length - header < sizeof(wire::UdpHeader)) return parts;
  parts.is_udp = true;
  parts.is_roce = at<wire::UdpHeader>(frame, parts.behind).destination == wire::kRocePort;
  return parts;
}

bool flip_bit(Frame& frame, const Parts& parts, uint64_t random, bool right_checksum) {
  if (parts.ip == 0) return false;
  const bool repaired = right_checksum && parts.is_udp;
  const size_t begin = parts.behind + (repaired ? sizeof(wire::UdpHeader) : 0);
  // The byte that the ICRC does not cover is taken out of the count.
  const bool skips = repaired && parts.is_roce && parts.end - begin > kVariantByte;
  const size_t bytes = parts.end - begin - (skips ? 1 : 0);
  if (bytes == 0) return false;
  size_t offset = random / 8 % bytes;
  if (skips && offset >= kVariantByte) ++offset;
  frame[begin + offset] ^= static_cast<uint8_t>(1u << (random % 8));
  if (repaired) put_udp_checksum(frame, parts);
  return true;
}

bool mark(Frame& frame, const Parts& parts) {
  if (parts.ip == 0) return false;
  const bool ipv4 = is_ipv4(frame, parts);
  uint8_t& byte = frame[parts.ip + 1];
  const int shift = ipv4 ? 0 : 4;
  const int ecn = byte >> shift & wire::kEcn;
  if (ecn == 0 || ecn == wire::kCongestionExperienced) return false;
  byte = static_cast<uint8_t>(byte | wire::kCongestionExperienced << shift);
  if (ipv4) {
    auto& ip = at<wire::Ipv4Header>(frame, parts.ip);
    ip.checksum = 0;
    ip.checksum = checksum(sum(std::span(frame).subspan(parts.ip, parts.behind - parts.ip)));
  }
  return true;
}

}  // namespace vrdma::cli::bad_wire
