// The netdevs of a process's network namespace that have addresses, by its routes.
//
// A netdev that is up and has an address has a route to its own prefix. The kernel shows the routes
// of a namespace to every user in /proc/PID/net, so no privilege is needed.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace vrdma::netns {

struct RoutedNetdevs {
  std::string of_default;     // of the default route with the lowest metric, IPv4 first; or empty
  std::set<std::string> all;  // without the loopback device, and without link-local addresses

  // The netdev for a device in the namespace: `wanted`, or if that is empty, the one of the default
  // route, or the only one. ENODEV: it has no address yet. ENOTUNIQ: there are several.
  [[nodiscard]] base::Result<std::string> choose(const std::string& wanted) const;
};

// The content of /proc/PID/net/route and /proc/PID/net/ipv6_route.
[[nodiscard]] RoutedNetdevs parse_routes(std::string_view ipv4, std::string_view ipv6);
// ESRCH: the process has ended.
[[nodiscard]] base::Result<RoutedNetdevs> routed_netdevs(pid_t pid);

}  // namespace vrdma::netns
