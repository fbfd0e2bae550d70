#include "gid/prefix.h"

#include <algorithm>
#include <charconv>

#include "core/base/printable.h"
#include "core/verbs/socket_address.h"

namespace vrdma::gid {

namespace {

constexpr unsigned kMapped = 96;  // bits before the IPv4 address

// Clears all bits after the first `bits`.
verbs::Gid cut(verbs::Gid gid, unsigned bits) {
  for (unsigned i = 0; i < gid.bytes.size(); ++i) {
    const unsigned kept = bits <= 8 * i ? 0 : std::min(8u, bits - 8 * i);
    gid.bytes[i] = static_cast<uint8_t>(gid.bytes[i] & (0xff00u >> kept));
  }
  return gid;
}

}  // namespace

base::Result<Prefix> Prefix::parse(const std::string& text) {
  const auto wrong = base::fail(EINVAL, "'" + base::printable(text) +
                                            "' is not an address prefix such as 10.0.0.0/24 or "
                                            "fd00::/64");
  const size_t slash = text.find('/');
  const auto address = verbs::parse_address(text.substr(0, slash));
  if (!address) return wrong;
  const unsigned before = address->is_ipv4_mapped() ? kMapped : 0;
  unsigned bits = 128 - before;
  if (slash != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, bits);
    if (error != std::errc() || rest != end || bits > 128 - before) return wrong;
  }
  return Prefix{cut(*address, before + bits), before + bits};
}

bool Prefix::contains(const verbs::Gid& gid) const {
  return gid.is_ipv4_mapped() == address.is_ipv4_mapped() && cut(gid, bits) == address;
}

std::string Prefix::text() const {
  const bool ipv4 = address.is_ipv4_mapped();
  char buffer[INET6_ADDRSTRLEN];
  ::inet_ntop(ipv4 ? AF_INET : AF_INET6, address.bytes.data() + (ipv4 ? 12 : 0), buffer,
              sizeof buffer);
  return std::string(buffer) + "/" + std::to_string(bits - (ipv4 ? kMapped : 0));
}

base::Result<std::vector<Prefix>> parse_prefixes(const std::vector<std::string>& texts) {
  std::vector<Prefix> all;
  for (const std::string& text : texts) {
    const auto prefix = Prefix::parse(text);
    if (!prefix) return base::pass(prefix.error());
    all.push_back(*prefix);
  }
  return all;
}

bool contains(const std::vector<Prefix>& prefixes, const verbs::Gid& gid) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const Prefix& prefix) { return prefix.contains(gid); });
}

Interface limited(Interface interface, const std::vector<Prefix>& prefixes, const verbs::Gid& own) {
  if (interface.mac && link_local(*interface.mac) != own) interface.mac.reset();
  std::erase_if(interface.addresses, [&](const auto& address) {
    const verbs::Gid gid{address};
    return gid != own && !contains(prefixes, gid);
  });
  return interface;
}

}  // namespace vrdma::gid
