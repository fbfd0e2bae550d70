// Why this host refuses a sandbox, in one sentence with the remedy.
//
// The kernel answers most refusals with EPERM, whoever refused: a sysctl, an LSM, a seccomp filter
// of a container engine. Which of them it was can only be concluded from what the host shows.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// What was being done when the kernel refused.
enum class Step {
  kUserNamespace,
  kIdMap,
  kMountNamespace,
  kNetNamespace,
  kPidNamespace,
  kMount,
  kNetdev
};

// What /proc says of the limits of this process. A value that cannot be read is absent.
struct HostFacts {
  std::optional<long> unprivileged_userns_clone;  // kernel.*, of Debian's older kernels
  std::optional<long> apparmor_restricts;  // kernel.apparmor_restrict_unprivileged_userns, Ubuntu
  std::optional<long> max_user, max_mnt, max_net, max_pid;  // user.max_*_namespaces
  std::string apparmor_profile;  // of this process; empty: none, or "unconfined"
  bool seccomp_filter = false;   // of this process
  bool root = false;             // euid 0, in whatever user namespace
};
[[nodiscard]] HostFacts look_at_host();

// An error of the same code: what was refused, by what as far as `facts` tell, what to do.
[[nodiscard]] base::Error explain(Step step, int code, const HostFacts& facts);

}  // namespace vrdma::cli::sandbox
