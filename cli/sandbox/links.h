// The network of a sandbox: namespaces, and a veth pair for each interface that gets a vdevice.
//
// Two interfaces are the two ends of one pair. Otherwise the other ends are in the network
// namespace of this process, in a bridge where the kernel has bridges. Without one, interfaces do
// not reach each other by IP (vdevices do).
//
// Interface i (from 0) has 10.0.0.<i+1>/24 and, where the kernel has IPv6, fd00::<i+1>/64.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// Makes a network namespace in which only `lo` is, up, and mounts it on `path`, which is made.
[[nodiscard]] base::Result<void> make_netns(const std::string& path);

struct Netdev {
  std::string netns;  // path, of make_netns()
  std::string name;
};
// Makes them, with their addresses, up. Errors have the codes of explain(Step::kNetdev).
[[nodiscard]] base::Result<void> make_netdevs(const std::vector<Netdev>& netdevs);

// The address of interface `index`.
[[nodiscard]] std::string address_of(unsigned index);

}  // namespace vrdma::cli::sandbox
