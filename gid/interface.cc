#include "gid/interface.h"

#include <algorithm>
#include <set>

namespace vrdma::gid {

namespace {

bool is_loopback(const verbs::Gid& gid) {
  static constexpr verbs::Gid kLoopback{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return gid == kLoopback || (gid.is_ipv4_mapped() && gid.bytes[12] == 127);
}

bool is_unspecified(const verbs::Gid& gid) {
  verbs::Gid any;
  if (gid.is_ipv4_mapped()) any.bytes[10] = any.bytes[11] = 0xff;
  return gid == any;
}

}  // namespace

verbs::Gid link_local(const std::array<uint8_t, 6>& mac) {
  const auto inverted = static_cast<uint8_t>(mac[0] ^ 0x02);
  return {
      {0xfe, 0x80, 0, 0, 0, 0, 0, 0, inverted, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}};
}

Derived derive_gids(const Interface& interface, const std::vector<verbs::Gid>& held, size_t room) {
  std::vector<verbs::Gid> all;
  if (interface.mac) all.push_back(link_local(*interface.mac));
  for (const auto& address : interface.addresses) {
    const verbs::Gid gid{address};
    if (gid.is_multicast() || is_unspecified(gid)) continue;
    if (is_loopback(gid) && !interface.loopback) continue;
    all.push_back(gid);
  }
  // Not placed yet. An ordered set, because a tenant could choose addresses whose hashes collide.
  std::set<verbs::Gid> open(all.begin(), all.end());
  Derived derived;
  if (!interface.mac) --room;
  const auto place = [&](const verbs::Gid& gid) {
    if (open.erase(gid) == 0) return;
    if (derived.gids.size() < room)
      derived.gids.push_back(gid);
    else
      ++derived.left_out;
  };
  // The GIDs of the fixed first indices are placed first, so that they always fit.
  const auto place_first_ipv4 = [&](const std::vector<verbs::Gid>& among) {
    const auto first = std::find_if(among.begin(), among.end(), [&](const verbs::Gid& gid) {
      return gid.is_ipv4_mapped() && open.contains(gid);
    });
    if (first == among.end()) return false;
    place(*first);
    return true;
  };
  if (interface.mac) place(all.front());
  if (!place_first_ipv4(held)) place_first_ipv4(all);
  for (const auto& gid : held) place(gid);
  for (const auto& gid : all) place(gid);
  return derived;
}

}  // namespace vrdma::gid
