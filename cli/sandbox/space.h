// The namespaces of a sandbox, and its private files.
//
// Without CAP_SYS_ADMIN the sandbox begins with a user namespace in which this user is root; all
// other namespaces belong to it. The host sees only the sandbox's processes: its files are on a
// tmpfs in its mount namespace. So the sandbox ends with its processes, for whatever reason.
//
// All functions require a single-threaded process.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/obstacle.h"
#include "core/base/error.h"

namespace vrdma::cli::sandbox {

struct Space {
  uid_t uid = 0;  // the caller's, outside the sandbox
  gid_t gid = 0;
  bool own_users = false;  // there is a new user namespace, in which `uid` is 0
  bool own_pids = false;   // children of this process are in a new pid namespace
  std::string dir;         // an empty directory on a tmpfs of the sandbox, mode 0755
};

// Moves this process into new user, mount, network and IPC namespaces, and its future children into
// a pid namespace. If /proc cannot be mounted (most container engines cover parts of it) there is
// no pid namespace. Errors come from explain().
[[nodiscard]] base::Result<Space> enter_space(const HostFacts& facts);

// For the first child of the process that called enter_space(), process 1 of the pid namespace:
// mounts that namespace's /proc.
[[nodiscard]] base::Result<void> mount_own_proc();

// Creates /dev/infiniband in the sandbox, without a change on the host, which lacks it.
[[nodiscard]] base::Result<void> add_infiniband_to_dev();

// Mounts on the new file `path` a user namespace for the commands, in which the sandbox's caller
// has the same ids as outside. All commands share it, because only processes of one user namespace
// have direct links.
[[nodiscard]] base::Result<void> keep_user_namespace(const Space& space, const std::string& path);

}  // namespace vrdma::cli::sandbox
