// What the process may do once it serves: a guest that takes it over finds little to use.
#pragma once

#include "core/base/error.h"

namespace vrdma::pvrdma {

// Forbids other processes of its user to trace this one and to read the guest's memory in it. A
// session of such a process has no direct links: no peer of its tenant maps that memory either.
// Before the device is opened.
[[nodiscard]] base::Result<void> keep_others_out();

// Permanently permits this thread and those that it starts what the library and the event loop
// need: to reconnect to vrdmad, to read files, to map memory. It executes no program, writes to no
// file, and traces and signals no process; other calls fail with ENOSYS. Before threads exist. Does
// nothing with a sanitizer, whose runtime needs other calls.
[[nodiscard]] base::Result<void> confine_system_calls();

}  // namespace vrdma::pvrdma
