// How rdma_cm uses the CM: ports in service ids, and addresses in private data.
//
// The private data of REQ and SIDR_REQ starts with an IpHeader; the rest is the program's. Other
// messages have none.
//
// Source: IBTA annex A11 (RDMA IP CM service).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/base/endian.h"
#include "core/verbs/gid.h"
#include "core/wire/cm.h"

namespace vrdma::wire {

enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

[[nodiscard]] constexpr uint64_t service_id(PortSpace space, uint16_t port) {
  return static_cast<uint64_t>(space) << 16 | port;
}

// The port space of a service id; empty if it is not one of rdma_cm.
[[nodiscard]] constexpr std::optional<PortSpace> port_space(uint64_t service_id) {
  switch (service_id >> 16) {
    case static_cast<uint64_t>(PortSpace::kIpoib):
    case static_cast<uint64_t>(PortSpace::kTcp):
    case static_cast<uint64_t>(PortSpace::kUdp):
    case static_cast<uint64_t>(PortSpace::kIb):
      return static_cast<PortSpace>(service_id >> 16);
    default:
      return std::nullopt;
  }
}
[[nodiscard]] constexpr uint16_t port(uint64_t service_id) {
  return static_cast<uint16_t>(service_id);
}

struct IpHeader {
  uint8_t version;     // 0
  uint8_t ip_version;  // high nibble: 4 or 6
  base::ub16 source_port;
  uint8_t source[16];       // IPv4: the last four bytes, after zeros
  uint8_t destination[16];  // likewise
};
static_assert(sizeof(IpHeader) == 36 && alignof(IpHeader) == 1);
static_assert(offsetof(IpHeader, source) == 4 && offsetof(IpHeader, destination) == 20);

constexpr size_t kReqUserData = sizeof(CmReq::private_data) - sizeof(IpHeader);
constexpr size_t kSidrUserData = sizeof(CmSidrReq::private_data) - sizeof(IpHeader);
static_assert(kReqUserData == 56 && kSidrUserData == 180);

// An IpHeader with the addresses as GIDs (IPv4 mapped into IPv6).
struct IpEnds {
  verbs::Gid source;
  verbs::Gid destination;
  uint16_t source_port = 0;
  bool operator==(const IpEnds&) const = default;
};

[[nodiscard]] inline IpHeader encode(const IpEnds& ends) {
  IpHeader header{};
  const bool ipv4 = ends.source.is_ipv4_mapped() && ends.destination.is_ipv4_mapped();
  header.ip_version = ipv4 ? 0x40 : 0x60;
  header.source_port = ends.source_port;
  const size_t from = ipv4 ? 12 : 0;
  std::memcpy(header.source + from, ends.source.bytes.data() + from, 16 - from);
  std::memcpy(header.destination + from, ends.destination.bytes.data() + from, 16 - from);
  return header;
}

// Empty if the version is not 0, or the address is neither IPv4 nor IPv6.
[[nodiscard]] inline std::optional<IpEnds> decode(const IpHeader& header) {
  const uint8_t ip = header.ip_version >> 4;
  if (header.version != 0 || (ip != 4 && ip != 6)) return std::nullopt;
  IpEnds ends;
  ends.source_port = header.source_port;
  const size_t from = ip == 4 ? 12 : 0;
  for (const auto& [bytes, gid] :
       {std::pair{header.source, &ends.source}, std::pair{header.destination, &ends.destination}}) {
    std::memcpy(gid->bytes.data() + from, bytes + from, 16 - from);
    if (ip == 4) gid->bytes[10] = gid->bytes[11] = 0xff;
  }
  return ends;
}

// From the private data of a REQ or SIDR_REQ.
[[nodiscard]] inline std::optional<IpEnds> ip_ends(const uint8_t* private_data) {
  IpHeader header;
  std::memcpy(&header, private_data, sizeof header);
  return decode(header);
}

}  // namespace vrdma::wire
