// A prefix of addresses, as an operator writes one: 10.0.0.0/24, fd00::/64; an address alone means
// itself only.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "gid/interface.h"

namespace vrdma::gid {

struct Prefix {
  verbs::Gid address;  // the bits behind the prefix are zero; IPv4 is mapped
  unsigned bits = 0;   // of 128: an IPv4 prefix has 96 and its own

  // EINVAL with a sentence.
  [[nodiscard]] static base::Result<Prefix> parse(const std::string& text);
  // ::/0 holds IPv6 addresses only: an IPv4 address is in prefixes of IPv4 alone.
  [[nodiscard]] bool contains(const verbs::Gid& gid) const;
  [[nodiscard]] std::string text() const;
};

// What `interface` may give a vdevice: of its addresses those in one of the prefixes, and beside
// them `link_local`, the default GID of the MAC that the interface had when the vdevice was made;
// with another MAC there is no default GID.
[[nodiscard]] Interface limited(Interface interface, const std::vector<Prefix>& prefixes,
                                const verbs::Gid& link_local);

}  // namespace vrdma::gid
