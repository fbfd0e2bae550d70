// An IPv4 or IPv6 address and port, in the form that sockets over RDMA compare. Touches no device.
#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace vrdma::client {

struct RsAddress {
  uint32_t scope = 0;  // interface of a link-local address
  uint16_t port = 0;
  std::array<uint8_t, 16> gid{};  // IPv4 mapped into IPv6
  static constexpr size_t kIpv4At = 12;

  auto operator<=>(const RsAddress&) const = default;
  [[nodiscard]] bool is_ipv4() const;
  [[nodiscard]] bool is_any() const;
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] bool is_multicast() const;

  // From a complete IPv4 or IPv6 address; nothing for another family.
  [[nodiscard]] static std::optional<RsAddress> from(const sockaddr* address);
  [[nodiscard]] static RsAddress of_ipv4(const uint8_t* bytes);
  // The address in a socket of the family. For AF_INET6, IPv4 is mapped into IPv6.
  [[nodiscard]] sockaddr_storage to(int family) const;
  [[nodiscard]] static socklen_t size(int family);
};

}  // namespace vrdma::client
