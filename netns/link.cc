#include "netns/link.h"

namespace vrdma::netns {

std::string change_of(const Link& from, const Link& to) {
  std::string all;
  const auto add = [&all](const std::string& one) { all += (all.empty() ? "" : ", ") + one; };
  if (from.up != to.up) add(to.up ? "link up" : "link down");
  if (from.name != to.name) add("netdev renamed to " + to.name);
  if (from.mtu != to.mtu) add("MTU " + std::to_string(to.mtu));
  if (from.mac != to.mac || from.addresses != to.addresses || from.has_more != to.has_more)
    add("addresses changed");
  return all;
}

const char* text(Gone gone) {
  switch (gone) {
    case Gone::kDeleted:
      return "netdev deleted";
    case Gone::kMoved:
      return "netdev moved to another netns";
    case Gone::kNetns:
      return "netns gone";
    case Gone::kVanished:
      return "netdev deleted or moved";
  }
  return "netdev gone";
}

}  // namespace vrdma::netns
