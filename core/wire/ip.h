// The IP headers of RoCE v2 on the wire, and how a receiver of datagrams finds them.
//
// Source: RFC 791, RFC 768, RFC 8200, IBTA annex A17.4.5: the first 40 bytes of a UD receive are
// the IPv6 header or, for IPv4, 20 undefined bytes and the IPv4 header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/endian.h"

namespace vrdma::wire {

struct Ipv4Header {
  uint8_t version_and_words;
  uint8_t tos;
  base::ub16 total_length;
  base::ub16 id;
  base::ub16 fragment;
  uint8_t ttl;
  uint8_t protocol;
  base::ub16 checksum;
  uint8_t source[4];
  uint8_t destination[4];
};
static_assert(sizeof(Ipv4Header) == 20 && alignof(Ipv4Header) == 1);

struct Ipv6Header {
  base::ub32 version_class_label;
  base::ub16 payload_length;
  uint8_t next_header;
  uint8_t hop_limit;
  uint8_t source[16];
  uint8_t destination[16];
};
static_assert(sizeof(Ipv6Header) == 40 && alignof(Ipv6Header) == 1);

struct UdpHeader {
  base::ub16 source;
  base::ub16 destination;
  base::ub16 length;
  base::ub16 checksum;
};
static_assert(sizeof(UdpHeader) == 8 && alignof(UdpHeader) == 1);

constexpr uint8_t kIpv4NoOptions = 0x45;  // version 4, five words
constexpr uint8_t kProtocolUdp = 17;
constexpr size_t kIpv4InGrh = sizeof(Ipv6Header) - sizeof(Ipv4Header);

// The ones' complement sum over a header (RFC 1071): 0xffff if its checksum is correct.
[[nodiscard]] inline uint16_t sum(const Ipv4Header& header) {
  uint32_t total = 0;
  const auto* bytes = reinterpret_cast<const uint8_t*>(&header);
  for (size_t i = 0; i < sizeof header; i += 2)
    total += static_cast<uint32_t>(bytes[i] << 8 | bytes[i + 1]);
  while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
  return static_cast<uint16_t>(total);
}

}  // namespace vrdma::wire
