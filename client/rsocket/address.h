// An address and a port, of IPv4 or IPv6, as sockets over RDMA compare them. Touches no device.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace vrdma::client {

struct RsAddress {
  uint32_t scope = 0;  // of a link-local address: its interface
  uint16_t port = 0;
  std::array<uint8_t, 16> gid{};  // IPv4 mapped into IPv6
  static constexpr size_t kIpv4At = 12;

  auto operator<=>(const RsAddress&) const = default;
  [[nodiscard]] bool is_ipv4() const;
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] bool is_multicast() const;

  // Of IPv4 or IPv6, whole; nothing for another family.
  [[nodiscard]] static std::optional<RsAddress> from(const sockaddr* address);
  [[nodiscard]] static RsAddress of_ipv4(const uint8_t* bytes);
  // As a socket of the family has it: one of AF_INET6 has mapped addresses too.
  [[nodiscard]] sockaddr_storage to(int family) const;
  [[nodiscard]] static socklen_t size(int family);
};

}  // namespace vrdma::client
