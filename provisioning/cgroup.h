// Control groups, through libcgroup: the group that a process belongs to, and what the group may
// use of a kernel RDMA device.
//
// Version 1 hierarchies and the unified one of version 2 are treated alike; that of the controller
// `rdma` comes first, then those that container engines use anyway. All calls are thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace vrdma::provisioning {

// The group's path from the root of its hierarchy, such as "/kubepods/pod1"; "/" if the process is
// in no group or the host has none.
[[nodiscard]] std::string cgroup_of(pid_t pid);

// Whether the kernel has the controller `rdma` and its hierarchy is mounted.
[[nodiscard]] bool has_rdma_controller();

// Limits the group's use of a kernel RDMA device (rdma.max,
// Documentation/admin-guide/cgroup-v1/rdma.rst): opened devices, and objects of all kinds together.
// EOPNOTSUPP without the controller.
[[nodiscard]] base::Result<void> set_rdma_max(const std::string& cgroup, const std::string& ibdev,
                                              uint64_t handles, uint64_t objects);

}  // namespace vrdma::provisioning
