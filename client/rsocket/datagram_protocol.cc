#include "client/rsocket/datagram_protocol.h"

#include <cstring>

#include "core/base/endian.h"

namespace vrdma::client {

namespace {

constexpr uint8_t kIpv4 = 4, kIpv6 = 6;
constexpr uint32_t kQpnMask = 0xffffff;

struct WireHeader {
  uint8_t version;
  uint8_t length;
  base::ub16 port;
};
struct WireHeader4 : WireHeader {
  uint8_t address[4];
};
struct WireHeader6 : WireHeader {
  base::ub32 flow;
  uint8_t address[16];
};
static_assert(sizeof(WireHeader4) == 8 && sizeof(WireHeader6) == RsHeader::kLongest);

struct WireService {
  base::ub32 tag;
  uint8_t version;
  uint8_t kind;
  uint8_t length;
  uint8_t reserved;
  base::ub32 qpn;
};
constexpr uint32_t kTag = 0x55555555;
constexpr uint32_t kService4 = sizeof(WireService) + 4, kService6 = sizeof(WireService) + 16;
static_assert(kService4 == 16 && kService6 == RsService::kLongest);

}  // namespace

uint32_t RsHeader::encode(const RsAddress& source, uint8_t* to) {
  if (source.is_ipv4()) {
    WireHeader4 wire{};
    wire.version = kIpv4;
    wire.length = sizeof wire;
    wire.port = source.port;
    std::memcpy(wire.address, source.gid.data() + RsAddress::kIpv4At, sizeof wire.address);
    std::memcpy(to, &wire, sizeof wire);
    return sizeof wire;
  }
  WireHeader6 wire{};
  wire.version = kIpv6;
  wire.length = sizeof wire;
  wire.port = source.port;
  std::memcpy(wire.address, source.gid.data(), sizeof wire.address);
  std::memcpy(to, &wire, sizeof wire);
  return sizeof wire;
}

std::optional<RsHeader> RsHeader::decode(std::span<const uint8_t> from) {
  RsHeader header;
  WireHeader4 four;
  WireHeader6 six;
  if (from.size() < sizeof four) return std::nullopt;
  std::memcpy(&four, from.data(), sizeof four);
  if (four.version == kIpv4 && four.length == sizeof four) {
    header.source = RsAddress::of_ipv4(four.address);
    header.size = sizeof four;
  } else if (four.version == kIpv6 && four.length == sizeof six && from.size() >= sizeof six) {
    std::memcpy(&six, from.data(), sizeof six);
    std::memcpy(header.source.gid.data(), six.address, sizeof six.address);
    header.size = sizeof six;
  } else {
    return std::nullopt;
  }
  header.source.port = four.port;
  if (header.source.port == 0) return std::nullopt;
  return header;
}

uint32_t RsService::encode(Kind kind, uint32_t qpn, const RsAddress& source, uint8_t* to) {
  WireService wire{};
  const bool four = source.is_ipv4();
  wire.tag = kTag;
  wire.version = four ? kIpv4 : kIpv6;
  wire.kind = static_cast<uint8_t>(kind);
  wire.length = four ? kService4 : kService6;
  wire.qpn = qpn & kQpnMask;
  std::memcpy(to, &wire, sizeof wire);
  const size_t begin = four ? RsAddress::kIpv4At : 0;
  std::memcpy(to + sizeof wire, source.gid.data() + begin, source.gid.size() - begin);
  return wire.length;
}

std::optional<RsService> RsService::decode(std::span<const uint8_t> from) {
  WireService wire;
  if (from.size() < sizeof wire) return std::nullopt;
  std::memcpy(&wire, from.data(), sizeof wire);
  const bool four = wire.version == kIpv4 && wire.length == kService4;
  const bool six = wire.version == kIpv6 && wire.length == kService6;
  if (wire.tag != kTag || (!four && !six) || from.size() < wire.length) return std::nullopt;
  RsService service;
  service.kind = static_cast<Kind>(wire.kind);
  service.qpn = wire.qpn & kQpnMask;
  service.size = wire.length;
  // 0 and 1 are the special queue pairs; the highest number denotes multicast.
  if (service.qpn < 2 || service.qpn == kQpnMask) return std::nullopt;
  if (service.kind != Kind::kMessage && service.kind != Kind::kAnswer) return std::nullopt;
  if (four)
    service.source = RsAddress::of_ipv4(from.data() + sizeof wire);
  else
    std::memcpy(service.source.gid.data(), from.data() + sizeof wire, service.source.gid.size());
  return service;
}

}  // namespace vrdma::client
