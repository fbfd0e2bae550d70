// What is known of a link: a network interface of some namespace, at one moment.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vrdma::netns {

using Mac = std::array<uint8_t, 6>;
// An IPv6 address as on the wire, or an IPv4 address mapped into one (::ffff:a.b.c.d).
using Address = std::array<uint8_t, 16>;

struct Link {
  uint64_t netns_cookie = 0;
  uint32_t ifindex = 0;
  std::string name;
  std::optional<Mac> mac;  // none: of another length than 6, or there is none
  uint32_t mtu = 0;        // bytes
  // Administratively up, with a carrier (IFF_UP and IFF_LOWER_UP): what the kernel's ib_core calls
  // an ACTIVE port of a netdev.
  bool up = false;
  bool loopback = false;
  // In the kernel's order, IPv4 first. All of them, whatever their state: tentative, deprecated,
  // secondary; so does the kernel for its GIDs (roce_gid_mgmt.c looks at no flag, and is told of
  // an IPv6 address when it is made, before duplicate address detection). Of a point-to-point
  // address the local one.
  std::vector<Address> addresses;

  bool operator==(const Link&) const = default;
};

// Why a link is gone.
enum class Gone : uint8_t {
  kDeleted,   // the netdev was deleted
  kMoved,     // to another namespace
  kNetns,     // the namespace is gone
  kVanished,  // deleted or moved: the kernel's word was lost
};

// "netdev deleted", "netdev moved to another netns", ...
[[nodiscard]] const char* text(Gone gone);

}  // namespace vrdma::netns
