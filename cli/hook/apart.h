// A step in a process of its own, with a time limit.
//
// A file system of a container may be served by a process of its user (FUSE) that never answers.
// Who waits for it cannot even be killed. So nothing waits for such a process: it holds no
// descriptor that another process waits for to be closed, and ends when that file system does.
#pragma once

#include <chrono>
#include <functional>

#include "core/base/error.h"

namespace vrdma::cli::hook {

// ETIMEDOUT: the step has not ended within `limit`; its process is killed. It is killed with this
// process, too. `step` runs in a copy of this process, which must have one thread, and first closes
// what this process uses to talk to others; standard input and output are closed already.
[[nodiscard]] base::Result<void> run_apart(const std::function<base::Result<void>()>& step,
                                           std::chrono::milliseconds limit);

// For the step, when it has changed its user or user namespace, which ends the kernel's promise to
// kill it with its parent.
void end_with_parent();

}  // namespace vrdma::cli::hook
