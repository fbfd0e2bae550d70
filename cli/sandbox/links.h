// The network of a sandbox: namespaces, and a veth pair for each interface that gets a vdevice.
//
// Two interfaces are the ends of one pair. Otherwise the other ends are in this process's network
// namespace, in a bridge if the kernel supports bridges. Without a bridge, interfaces cannot reach
// each other by IP (vdevices can).
//
// Interface i (from 0) has 10.0.0.<i+1>/24 and, if the kernel supports IPv6, fd00::<i+1>/64.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// Creates a network namespace with only `lo`, up, and mounts it on the new file `path`.
[[nodiscard]] base::Result<void> make_netns(const std::string& path);

struct Netdev {
  std::string netns;  // path, of make_netns()
  std::string name;
};
// Creates the interfaces. Errors have the codes of explain(Step::kNetdev).
[[nodiscard]] base::Result<void> make_netdevs(const std::vector<Netdev>& netdevs);
// Gives interfaces that exist their addresses, and sets them up. Errors as above.
[[nodiscard]] base::Result<void> set_up_netdevs(const std::vector<Netdev>& netdevs);

// The address of interface `index`.
[[nodiscard]] std::string address_of(unsigned index);

}  // namespace vrdma::cli::sandbox
