#include "client/rsocket/address.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace vrdma::client {

namespace {

constexpr std::array<uint8_t, RsAddress::kIpv4At> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

bool RsAddress::is_ipv4() const { return std::equal(kMapped.begin(), kMapped.end(), gid.begin()); }

bool RsAddress::is_any() const {
  const auto begin = gid.begin() + (is_ipv4() ? kIpv4At : 0);
  return std::all_of(begin, gid.end(), [](uint8_t byte) { return byte == 0; });
}

bool RsAddress::is_loopback() const {
  if (is_ipv4()) return gid[kIpv4At] == 127;
  constexpr std::array<uint8_t, 16> kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return gid == kLoopback;
}

bool RsAddress::is_multicast() const {
  return is_ipv4() ? gid[kIpv4At] >> 4 == 0xe : gid[0] == 0xff;
}

std::optional<RsAddress> RsAddress::from(const sockaddr* address) {
  RsAddress found;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof in);
    found = of_ipv4(reinterpret_cast<const uint8_t*>(&in.sin_addr));
    found.port = ntohs(in.sin_port);
    return found;
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in6;
  std::memcpy(&in6, address, sizeof in6);
  found.port = ntohs(in6.sin6_port);
  std::memcpy(found.gid.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
  if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr)) found.scope = in6.sin6_scope_id;
  return found;
}

RsAddress RsAddress::of_ipv4(const uint8_t* bytes) {
  RsAddress found;
  std::copy(kMapped.begin(), kMapped.end(), found.gid.begin());
  std::memcpy(found.gid.data() + kIpv4At, bytes, 4);
  return found;
}

sockaddr_storage RsAddress::to(int family) const {
  sockaddr_storage all{};
  if (family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, gid.data() + kIpv4At, sizeof in.sin_addr);
    std::memcpy(&all, &in, sizeof in);
    return all;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(port);
  in6.sin6_scope_id = scope;
  std::memcpy(&in6.sin6_addr, gid.data(), sizeof in6.sin6_addr);
  std::memcpy(&all, &in6, sizeof in6);
  return all;
}

socklen_t RsAddress::size(int family) {
  return family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace vrdma::client
