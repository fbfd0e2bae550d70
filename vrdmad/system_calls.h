// The system calls that the daemon may make after its start. Foreign code in it could not execute a
// program (but in the broker), mount a file system, trace a process or load code into the kernel.
//
// system_calls.cc lists them by purpose. Others return ENOSYS, as on an older kernel, so that a
// newer C library falls back to what it used before.
#pragma once

#include "core/base/error.h"

namespace vrdma::vrdmad {

// Applies to this thread and those that it starts, permanently. Call before threads exist. An error
// means that the kernel has no such filter (seccomp(2)) and nothing has changed. Does nothing with
// a sanitizer, whose runtime needs other calls.
[[nodiscard]] base::Result<void> confine_system_calls();

// As above, for the broker (vrdmad/broker/broker_serve.h), which alone may execute a program, for
// worker processes. They inherit the filter; their own: worker_system_calls.h.
[[nodiscard]] base::Result<void> confine_broker();
// As above, for the intake process (vrdmad/broker/intake_process.h).
[[nodiscard]] base::Result<void> confine_intake();
// As above, for the stopper (vrdmad/stopper/process.h), the only process that may trace. It may
// open files for reading only.
[[nodiscard]] base::Result<void> confine_stopper();
// As above, for the process of metrics for other hosts (vrdmad/admin/remote_metrics.h). It may open
// files for reading only, and makes no socket.
[[nodiscard]] base::Result<void> confine_metrics();

}  // namespace vrdma::vrdmad
