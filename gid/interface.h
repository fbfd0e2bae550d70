// Which GIDs a network interface provides: RoCE v2, annex A17 of the IBTA specification.
//
// The rules are those of the kernel (drivers/infiniband/core/roce_gid_mgmt.c):
// - First the default GID, the link-local address with the EUI-64 of the MAC (fe80::/64, the
//   universal/local bit inverted, RFC 4291 appendix A), even if the interface does not have it.
// - Then each address, IPv4 ones mapped (::ffff:a.b.c.d), in any state: including tentative,
//   deprecated and secondary ones, and those of an interface that is down.
//
// Addresses that are useless to a peer are omitted: multicast, unspecified, and loopback addresses.
// The loopback interface keeps its loopback addresses, so that a vdevice on lo can be used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/verbs/gid.h"

namespace vrdma::gid {

struct Interface {
  std::optional<std::array<uint8_t, 6>> mac;  // empty: an interface without a MAC, such as a tunnel
  bool loopback = false;
  std::vector<std::array<uint8_t, 16>> addresses;  // IPv6, or mapped IPv4; in the kernel's order
};

// fe80::/64 with the EUI-64 of `mac`.
[[nodiscard]] verbs::Gid link_local(const std::array<uint8_t, 6>& mac);

struct Derived {
  std::vector<verbs::Gid> gids;
  size_t left_out = 0;  // addresses that did not fit into the table
};

// The order, without duplicates: the default GID if there is a MAC; then the first IPv4 GID of
// `held`, or else the first of the interface; then the rest of `held`; then the others in the
// kernel's order. Therefore a vdevice keeps its GIDs however many addresses are added (the kernel
// may list the newest first). At most `room` GIDs, or one less without a MAC, because the layout
// then repeats one (gid/layout.h).
[[nodiscard]] Derived derive_gids(const Interface& interface,
                                  const std::vector<verbs::Gid>& held = {},
                                  size_t room = verbs::kMaxGids);

}  // namespace vrdma::gid
