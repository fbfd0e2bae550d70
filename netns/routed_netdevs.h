// The netdevs of a process's network namespace that have addresses, by its routes.
//
// A netdev that is up and has an address has a route to its own prefix. The kernel shows the routes
// of a namespace to every user in /proc/PID/net, so no privilege is needed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace vrdma::netns {

struct RoutedNetdevs {
  std::string of_default;     // of the default route with the lowest metric, IPv4 first; or empty
  std::set<std::string> all;  // without the loopback device, and without link-local addresses
  bool cut = false;           // there are more routes, which were not read

  // The netdev for a device in the namespace: `wanted`, or if that is empty, the one of the default
  // route, or the only one. ENODEV: it has no address yet. ENOTUNIQ: there are several. E2BIG:
  // the routes that were read do not tell.
  [[nodiscard]] base::Result<std::string> choose(const std::string& wanted) const;
};

// The content of /proc/PID/net/route and /proc/PID/net/ipv6_route.
[[nodiscard]] RoutedNetdevs parse_routes(std::string_view ipv4, std::string_view ipv6);
// Of each file, routed_netdevs() reads at most these bytes, because a tenant may have any number of
// routes. The kernel writes the IPv4 default route first.
constexpr size_t kMostOfRoutes = 256 << 10;
// ESRCH: the process has ended. EMFILE: this process has too many open files. The kernel may take
// long: it skips any number of routes that it does not show.
[[nodiscard]] base::Result<RoutedNetdevs> routed_netdevs(pid_t pid);

}  // namespace vrdma::netns
