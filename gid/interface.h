// What GIDs a network interface gives: RoCE v2, annex A17 of the IBTA specification.
//
// The rules are those of the kernel (drivers/infiniband/core/roce_gid_mgmt.c):
// - first the default GID, the link-local address that the EUI-64 of the MAC makes (fe80::/64, the
//   universal/local bit inverted, RFC 4291 appendix A), whether the interface has it or not;
// - then each address, IPv4 ones mapped (::ffff:a.b.c.d), whatever their state: also tentative,
//   deprecated or secondary ones, and those of an interface that is down.
//
// Left out are what nobody else can reach or mean: loopback addresses (unless the interface is
// the loopback, so that a vdevice on lo can be used), multicast and unspecified ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/verbs/gid.h"

namespace vrdma::gid {

struct Interface {
  std::optional<std::array<uint8_t, 6>> mac;  // none: an interface without one, such as a tunnel
  bool loopback = false;
  std::vector<std::array<uint8_t, 16>> addresses;  // IPv6, or IPv4 mapped; in the kernel's order
};

// fe80::/64 with the EUI-64 of `mac`.
[[nodiscard]] verbs::Gid link_local(const std::array<uint8_t, 6>& mac);

struct Derived {
  std::vector<verbs::Gid> gids;
  size_t left_out = 0;  // addresses for which a table has no room
};

// Without duplicates, and no more than a table holds: the default GID first if there is a MAC, then
// the first IPv4 GID among `held`, or for want of one the first of the interface, then what is
// among `held`, in that order, then the rest in the order given. A vdevice therefore keeps its
// GIDs, however many addresses are added: the kernel may name the newest first. At most `room`
// GIDs; one less without a MAC, for the layout repeats one then (gid/layout.h).
[[nodiscard]] Derived derive_gids(const Interface& interface,
                                  const std::vector<verbs::Gid>& held = {},
                                  size_t room = verbs::kMaxGids);

}  // namespace vrdma::gid
