// The invariant CRC, the last four bytes of a RoCE v2 packet.
//
// It is the CRC-32 of Ethernet over 8 bytes of ones, the IP and the UDP header, and the packet up
// to its padding. Fields that routers may change count as ones: traffic class, time to live and
// header checksum (IPv6: traffic class, flow label and hop limit), the UDP checksum, and the byte
// `congestion` of the BTH. Its bytes stand on the wire with the least significant first.
//
// A receiver that reads from a UDP socket does not see the identification of the IPv4 header, which
// is part of the CRC. A CRC is linear: what the ICRC differs by from that of identification 0 tells
// the identification, if there is one that fits. 16 of the 32 bits are left to detect errors.
//
// Source: IBTA 7.8.1, annex A17.3.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/wire/ip.h"
#include "core/wire/roce.h"

namespace vrdma::wire {

class Icrc {
 public:
  // Begins with these headers, of which the ones are masked here. Everything behind `bth` must be
  // added.
  Icrc(const Ipv4Header& ip, const UdpHeader& udp, const Bth& bth);
  Icrc(const Ipv6Header& ip, const UdpHeader& udp, const Bth& bth);

  void add(const uint8_t* bytes, size_t size);
  [[nodiscard]] uint32_t value() const { return crc_; }
  void write(uint8_t* out) const {
    const base::ul32 bytes(crc_);
    std::memcpy(out, &bytes, sizeof bytes);
  }
  [[nodiscard]] static uint32_t read(const uint8_t* from) {
    base::ul32 bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    return bytes;
  }

 private:
  uint32_t crc_;
};

// `computed`: with identification 0. `covered`: the bytes of the packet that the ICRC covers, from
// the BTH to the padding. The identification with which the ICRC is `received`; empty: there is
// none, so the packet is damaged.
[[nodiscard]] std::optional<uint16_t> find_ipv4_id(uint32_t computed, uint32_t received,
                                                   size_t covered);

}  // namespace vrdma::wire
