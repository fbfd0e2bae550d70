// The system calls that a worker process may make after its start. Any other kills it, because it
// makes none: so foreign code in it ends at its first attempt to open a file, to make a socket, to
// execute a program, or to signal or trace a process. A file of its own, so that vrdmad-worker,
// which is static, links no other.
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::vrdmad {

// Applies to this thread and those that it starts, permanently. Call before threads exist, when all
// is open that the worker opens itself (transport/hole_guard.h). From then on other processes of
// its user can neither trace it nor take its descriptors. Error: the kernel has no such filter
// (seccomp(2)). There is no filter with a sanitizer, whose runtime needs other calls.
[[nodiscard]] base::Result<void> confine_worker();

// The names of all calls above, with spaces between: a filter is inherited, so that of the broker
// must allow them.
[[nodiscard]] std::string worker_calls();

}  // namespace vrdma::vrdmad
