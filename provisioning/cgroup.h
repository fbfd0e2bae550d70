// Control groups, by libcgroup: whom the kernel counts a process to, and what it lets that use of a
// kernel's RDMA device.
//
// Hierarchies of version 1 and the unified one of version 2 are looked at alike: of those that are
// mounted, first that of the controller `rdma`, then those that container engines use anyway.
// All calls are thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace vrdma::provisioning {

// The group's path from the root of its hierarchy, such as "/kubepods/pod1"; "/" if it is in none
// or the host has none.
[[nodiscard]] std::string cgroup_of(pid_t pid);

// Whether the kernel has the controller `rdma` and a hierarchy for it is mounted.
[[nodiscard]] bool has_rdma_controller();

// What the group may use of a kernel's RDMA device (rdma.max, Documentation/admin-guide/cgroup-v1/
// rdma.rst): opened devices, and objects of all kinds together. EOPNOTSUPP without the controller.
[[nodiscard]] base::Result<void> set_rdma_max(const std::string& cgroup, const std::string& ibdev,
                                              uint64_t handles, uint64_t objects);

}  // namespace vrdma::provisioning
