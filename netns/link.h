// A snapshot of a link, that is, a network interface of some namespace.
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
  std::optional<Mac> mac;  // empty: no address, or one whose length is not 6
  uint32_t mtu = 0;        // bytes
  // Administratively up and with carrier (IFF_UP and IFF_LOWER_UP), which is when the kernel's
  // ib_core reports the port of a netdev as ACTIVE.
  bool up = false;
  bool loopback = false;
  // All addresses in the kernel's order, IPv4 first, including tentative, deprecated and secondary
  // ones. The kernel derives its GIDs from the same set: roce_gid_mgmt.c checks no flags, and it is
  // notified of an IPv6 address before duplicate address detection. For a point-to-point address,
  // the local one. At most kMostAddresses are read.
  static constexpr size_t kMostAddresses = 256;
  std::vector<Address> addresses;
  bool has_more = false;  // addresses than these
  // Of these, to which no socket can be bound yet: duplicate address detection runs (RFC 4862), or
  // has found that another host has the address.
  std::vector<Address> tentative;

  bool operator==(const Link&) const = default;
};

// Why a link is gone.
enum class Gone : uint8_t {
  kDeleted,   // the netdev was deleted
  kMoved,     // moved to another namespace
  kNetns,     // its namespace ended
  kVanished,  // deleted or moved; the kernel's event was lost
};

// "netdev deleted", "netdev moved to another netns", ...
[[nodiscard]] const char* text(Gone gone);

// What differs, for people: "link down", "netdev renamed to eth1, MTU 9000", ... Changes that
// follow one another quickly are read at once, and all of them are named. Empty if nothing differs
// but what is tentative.
[[nodiscard]] std::string change_of(const Link& from, const Link& to);

}  // namespace vrdma::netns
