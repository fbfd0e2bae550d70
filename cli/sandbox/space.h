// The namespaces of a sandbox, and the files that only it sees.
//
// Without CAP_SYS_ADMIN the sandbox begins with a user namespace in which this user is root; all
// other namespaces belong to it. Nothing of a sandbox is on the host but processes: its files are
// on a tmpfs in its mount namespace. So whatever ends the processes ends the sandbox.
//
// All functions are for a process with one thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/obstacle.h"
#include "core/base/error.h"

namespace vrdma::cli::sandbox {

struct Space {
  uid_t uid = 0;  // of the caller, outside
  gid_t gid = 0;
  bool own_users = false;  // a user namespace was made, in which `uid` is 0
  bool own_pids = false;   // children of this process are in a pid namespace of their own
  std::string dir;         // an empty directory on a tmpfs of the sandbox, mode 0755
};

// Moves this process into new user, mount, network and IPC namespaces, and its future children into
// a pid namespace. Where /proc cannot be mounted (most container engines cover parts of it) there
// is no pid namespace. Errors are of explain().
[[nodiscard]] base::Result<Space> enter_space(const HostFacts& facts);

// For the first child of the process that called enter_space(), which is process 1 of the pid
// namespace: the /proc of that.
[[nodiscard]] base::Result<void> mount_own_proc();

// Makes /dev/infiniband in the sandbox, without a trace of it on the host, where there is none.
[[nodiscard]] base::Result<void> add_infiniband_to_dev();

// Mounts on `path`, which is made, a user namespace in which the caller of the sandbox has the ids
// that it has outside, for the command. All commands share it: only processes of one user namespace
// have direct links.
[[nodiscard]] base::Result<void> keep_user_namespace(const Space& space, const std::string& path);

}  // namespace vrdma::cli::sandbox
