// The IP address that a GID is, as text and as a socket address (ip(7), ipv6(7)).
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "core/verbs/gid.h"

namespace vrdma::verbs {

// Of UDP, for RoCE v2 (annex A17.3).
constexpr uint16_t kRocePort = 4791;
// Source ports of a sender that does not have all of wire::source_port(). They are in that range,
// and behind those that Linux gives to programs (net.ipv4.ip_local_port_range: up to 60999). They
// are neighbours: a router that adds or exclusive-ors ports spreads them evenly.
constexpr unsigned kMostSourcePorts = 8;
[[nodiscard]] constexpr uint16_t few_source_port(unsigned index) {
  return static_cast<uint16_t>(0xf000 + index);
}

struct SocketAddress {
  // `ifindex`: of the netdev of a link-local address.
  SocketAddress(const Gid& gid, uint16_t port, uint32_t ifindex) {
    if (gid.is_ipv4_mapped()) {
      ipv4 = {};
      ipv4.sin_family = AF_INET;
      ipv4.sin_port = htons(port);
      std::memcpy(&ipv4.sin_addr, gid.bytes.data() + 12, sizeof ipv4.sin_addr);
      size = sizeof ipv4;
      return;
    }
    ipv6 = {};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&ipv6.sin6_addr, gid.bytes.data(), sizeof ipv6.sin6_addr);
    if (gid.is_link_local()) ipv6.sin6_scope_id = ifindex;
    size = sizeof ipv6;
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&ipv6); }

  union {
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  };
  socklen_t size;
};

// Of a sockaddr_in or a sockaddr_in6.
[[nodiscard]] inline Gid gid_of(const sockaddr* from) {
  Gid gid = Gid::unspecified(true);
  if (from->sa_family == AF_INET6)
    std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr, 16);
  else
    std::memcpy(gid.bytes.data() + 12, &reinterpret_cast<const sockaddr_in*>(from)->sin_addr, 4);
  return gid;
}

// "10.0.0.1", "fd00::1"; empty: the text is no address.
[[nodiscard]] inline std::optional<Gid> parse_address(const std::string& text) {
  Gid gid = Gid::unspecified(true);
  if (::inet_pton(AF_INET, text.c_str(), gid.bytes.data() + 12) == 1) return gid;
  if (::inet_pton(AF_INET6, text.c_str(), gid.bytes.data()) == 1) return gid;
  return {};
}

}  // namespace vrdma::verbs
