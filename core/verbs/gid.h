// A GID: the 128-bit address of a port in its fabric (IBTA 4.1; for RoCE v2 an IPv6 address, or an
// IPv4 address mapped into one, annex A17.4.2).
#pragma once

#include <arpa/inet.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace vrdma::verbs {

struct Gid {
  std::array<uint8_t, 16> bytes{};  // in network byte order

  auto operator<=>(const Gid&) const = default;

  // A group address: ff00::/8, or ::ffff:224.0.0.0/100, the IPv4 groups of RoCE v2.
  [[nodiscard]] bool is_multicast() const {
    return bytes[0] == 0xff || (is_ipv4_mapped() && (bytes[12] & 0xf0) == 0xe0);
  }
  // ::ffff:a.b.c.d
  [[nodiscard]] bool is_ipv4_mapped() const {
    static constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(bytes.data(), kPrefix.data(), kPrefix.size()) == 0;
  }
  // fe80::/10: valid on one link only.
  [[nodiscard]] bool is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }
  // :: or ::ffff:0.0.0.0, the wildcards of the two families.
  [[nodiscard]] bool is_unspecified() const {
    return *this == unspecified(true) || *this == unspecified(false);
  }
  [[nodiscard]] static Gid unspecified(bool ipv4) {
    Gid gid;
    if (ipv4) gid.bytes[10] = gid.bytes[11] = 0xff;
    return gid;
  }
  // Of a structure of fixed layout.
  [[nodiscard]] static Gid of(const uint8_t (&bytes)[16]) {
    Gid gid;
    std::memcpy(gid.bytes.data(), bytes, sizeof bytes);
    return gid;
  }
  // Canonical IPv6 text.
  [[nodiscard]] std::string text() const {
    char buffer[INET6_ADDRSTRLEN];
    return ::inet_ntop(AF_INET6, bytes.data(), buffer, sizeof buffer);
  }
};
static_assert(sizeof(Gid) == 16);

// The size of a GID table, because entries are named by a byte (sgid_index of ibv_ah_attr).
inline constexpr size_t kMaxGids = 256;

}  // namespace vrdma::verbs

template <>
struct std::hash<vrdma::verbs::Gid> {
  size_t operator()(const vrdma::verbs::Gid& gid) const noexcept {
    uint64_t halves[2];
    std::memcpy(halves, gid.bytes.data(), sizeof halves);
    return static_cast<size_t>(halves[0] * 0x9e3779b97f4a7c15 ^ halves[1]);
  }
};
