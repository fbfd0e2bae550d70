// Explains why this host refuses a sandbox, in one sentence with the remedy.
//
// The kernel answers most refusals with EPERM, whether the cause is a sysctl, an LSM or a seccomp
// filter of a container engine. The cause is derived from facts about the host.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// The operation that the kernel refused.
enum class Step {
  kUserNamespace,
  kIdMap,
  kMountNamespace,
  kNetNamespace,
  kPidNamespace,
  kMount,
  kNetdev
};

// Limits of this process according to /proc. An unreadable value is absent.
struct HostFacts {
  std::optional<long> unprivileged_userns_clone;  // kernel.*, of Debian's older kernels
  std::optional<long> apparmor_restricts;  // kernel.apparmor_restrict_unprivileged_userns, Ubuntu
  std::optional<long> max_user, max_mnt, max_net, max_pid;  // user.max_*_namespaces
  std::string apparmor_profile;  // of this process; empty: none, or "unconfined"
  bool seccomp_filter = false;   // of this process
  bool root = false;             // euid 0, in any user namespace
  bool may_map_root = true;      // has CAP_SETFCAP, which that takes since Linux 5.12
};
[[nodiscard]] HostFacts look_at_host();

// An error with the same code: what was refused, by what according to `facts`, and what to do.
[[nodiscard]] base::Error explain(Step step, int code, const HostFacts& facts);

}  // namespace vrdma::cli::sandbox
