// Finds out whose container a hook speaks for. Nothing that the hook says is believed: the kernel
// knows the process of the pidfd, the namespace of that process, and the user that owns the
// namespace.
#pragma once

#include <sys/types.h>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "netns/netns.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/broker/broker.h"

namespace vrdma::vrdmad {

struct Witness {
  Owner init;  // the container's first process, which lives
  netns::Netns netns;
  uid_t owner = 0;    // of the user namespace that the network namespace belongs to
  bool host = false;  // the network namespace is the daemon's, or that of process 1
};

// `netns` and `pidfd`: as the intake judged them. ESRCH: the process has ended. EPERM: the
// namespace is not that of the process, or is outside of the daemon's user namespace.
[[nodiscard]] base::Result<Witness> witness(Broker& broker, const base::Fd& netns,
                                            const base::Fd& pidfd);

}  // namespace vrdma::vrdmad
