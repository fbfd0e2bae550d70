// An address prefix as an operator writes it: 10.0.0.0/24 or fd00::/64. An address without a length
// stands for itself only.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "gid/interface.h"

namespace vrdma::gid {

struct Prefix {
  verbs::Gid address;  // the bits after the prefix are zero; IPv4 is mapped
  unsigned bits = 0;   // of 128; for IPv4, 96 plus the length of the IPv4 prefix

  // EINVAL for malformed text.
  [[nodiscard]] static base::Result<Prefix> parse(const std::string& text);
  // IPv6 prefixes, ::/0 included, never contain an IPv4 address.
  [[nodiscard]] bool contains(const verbs::Gid& gid) const;
  [[nodiscard]] std::string text() const;
  bool operator==(const Prefix&) const = default;
};

// Of each text; the first error.
[[nodiscard]] base::Result<std::vector<Prefix>> parse_prefixes(
    const std::vector<std::string>& texts);
// Whether one of them contains it.
[[nodiscard]] bool contains(const std::vector<Prefix>& prefixes, const verbs::Gid& gid);
// The same of the peers of a fabric: none stands for all.
[[nodiscard]] inline bool permits(const std::vector<Prefix>& peers, const verbs::Gid& gid) {
  return peers.empty() || contains(peers, gid);
}

// Reduces `interface` to what its vdevice may use: the addresses within one of the prefixes, and
// `link_local`, the default GID of the MAC that the interface had when the vdevice was created. If
// the MAC has changed, there is no default GID.
[[nodiscard]] Interface limited(Interface interface, const std::vector<Prefix>& prefixes,
                                const verbs::Gid& link_local);

}  // namespace vrdma::gid
