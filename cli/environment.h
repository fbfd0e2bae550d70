// Where programs look for RDMA devices beside verbs: /sys/class/infiniband and /dev/infiniband.
//
// The kernel has neither for a vdevice. So a program that `vrdmactl exec` runs gets a mount
// namespace of its own, as ip-netns(8) gives one, with /sys of the network namespace that this
// process is in, and the mounts of cli/mounts/plan.h. /dev/infiniband itself is made on the host
// where there is none, as a place to mount on, and stays empty there.
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::cli {

// Moves this process into such a mount namespace. `sysfs_dir` is the run directory's directory of
// sysfs trees for this process's network namespace; all vdevices in it are shown, and no other tree
// is mounted. Needs CAP_SYS_ADMIN, and to be root, who alone may enter the directory. After an
// error, part of it may have happened: programs that need no more than verbs still run.
[[nodiscard]] base::Result<void> make_environment(const std::string& sysfs_dir);

}  // namespace vrdma::cli
