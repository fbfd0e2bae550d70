// The first process of a container and its namespaces.
#pragma once

#include <sys/types.h>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::hook {

struct Init {
  base::Fd process;  // pidfd
  base::Fd net, mount, user;
};

// All of the same process: it still runs after its namespaces were opened.
[[nodiscard]] base::Result<Init> open_init(pid_t pid);

// Moves this process, which has one thread, into the mount namespace, and before that into the user
// namespace if it is another one: there it is root, and no more on the host.
[[nodiscard]] base::Result<void> enter_mounts(const Init& init);

}  // namespace vrdma::cli::hook
