// Where programs look for RDMA devices beside verbs: /sys/class/infiniband and /dev/infiniband.
//
// The kernel has neither for a vdevice. So a program that `vrdmactl exec` runs gets a mount
// namespace of its own, as ip-netns(8) gives one, and in it
//
//   /sys                                   that of the network namespace this process is in
//   /sys/class/infiniband/<vdevice>/       what vrdmad keeps, read-only
//   (vrdmad/control/sysfs_tree.h); /sys/class/infiniband_verbs/uverbs<N>/   N: one that no device
//   of the kernel has /dev/infiniband/<vdevice>              a null device: some programs ask
//   whether they may open
//                                          the node of that name, and use verbs if they may
//
// beside all that was there before. /dev/infiniband itself is made on the host where there is none,
// as a place to mount on, and stays empty there. No directory can be made in sysfs, so a tmpfs
// that holds what was there covers the class directory.
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
