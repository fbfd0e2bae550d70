// What the daemon may ask the kernel for once it has started: the system calls that it makes, and
// no other. A stranger who came to run code in it could execute no program, mount nothing, trace
// nobody, load nothing into the kernel.
//
// system_calls.cc lists them by what they are for. Others answer ENOSYS, as an older kernel would,
// so that a C library that knows something newer falls back on what it used before.
#pragma once

#include "core/base/error.h"

namespace vrdma::vrdmad {

// For this thread and those that it starts, for good. Call it before threads are made. An error
// means that the kernel has no such filter (seccomp(2)) and nothing has changed. With a sanitizer,
// which needs others, nothing is done.
[[nodiscard]] base::Result<void> confine_system_calls();

// The same for the intake process (vrdmad/broker/intake_process.h), which needs few.
[[nodiscard]] base::Result<void> confine_intake();
// And for the stopper (vrdmad/stopper/process.h), which alone may trace.
[[nodiscard]] base::Result<void> confine_stopper();

}  // namespace vrdma::vrdmad
