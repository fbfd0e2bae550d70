// What the node offers to the scheduler: a pool with a device for each class, which many claims
// share. Pure functions, but for pcie_root().
//
// A device has capacities, of which each claim consumes a part:
//
//   vdevices    one by each claim
//   qp          queue pairs
//   mr_bytes    bytes of memory regions
//   bandwidth   bits per second; only of a class that limits it
//
// What a claim does not ask for is what the class gives (`quota`), and the most that it may ask for
// is what the class allows (`max_quota`). The total is that of all vdevices that the class offers.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/kubernetes/node/health.h"
#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

struct Capacity {
  uint64_t total = 0;
  uint64_t least = 0, initial = 0, most = 0;  // of a claim; initial: of one that does not say
  bool operator==(const Capacity&) const = default;
};

struct PoolDevice {
  std::string name;                               // a DNS label
  std::map<std::string, std::string> attributes;  // by qualified name
  std::map<std::string, Capacity> capacities;     // by name
  std::string taint;                              // why no claim gets it, a word; empty: claims do
  bool shared = true;  // false: of a slice that the API server wrote without sharing
  bool operator==(const PoolDevice&) const = default;
};

// A DNS label: "small"; of other names a part and a hash.
[[nodiscard]] std::string pool_device_name(const std::string& class_name);

// `domain`: of the attributes. `pcie_root`: of an adapter; may be empty.
[[nodiscard]] PoolDevice pool_device_of(const v1::Class& which,
                                        const std::optional<Unhealthy>& unhealthy,
                                        const std::string& domain, const std::string& pcie_root);

// The quota settings that a claim's consumed capacity means. EINVAL: an unknown capacity.
[[nodiscard]] base::Result<std::vector<v1::QuotaSetting>> quota_of(
    const std::map<std::string, uint64_t>& consumed);

// "pci0000:00" for an adapter such as mlx5_0; empty: it is none. `sysfs`: "/sys", but for tests.
[[nodiscard]] std::string pcie_root(const std::string& parent, const std::string& sysfs);

}  // namespace vrdma::cli::kubernetes
