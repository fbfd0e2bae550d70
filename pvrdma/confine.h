// What the process may do once it serves: a guest that takes it over finds little to use.
#pragma once

#include <cstdint>

#include "core/base/error.h"

namespace vrdma::pvrdma {

// Forbids other processes of its user to trace this one and to read the guest's memory in it. A
// session of such a process has no direct links: no peer of its tenant maps that memory either.
// Before the device is opened.
[[nodiscard]] base::Result<void> keep_others_out();

enum class Role : uint8_t { kKeeper, kParser };

// Permanently permits this thread and those that it starts what the library and the event loop
// need: to reconnect to vrdmad, to read files, to map memory. It executes no program, writes to no
// file, and traces and signals no process; other calls fail with ENOSYS. Before threads exist. Does
// nothing with a sanitizer, whose runtime needs other calls.
// The keeper starts parsers, so it may do in addition what these need until they serve (set the
// mode and size of their memory files, add a filter), and make a socket pair, wait for a process
// and kill one.
[[nodiscard]] base::Result<void> confine_system_calls(Role role);

}  // namespace vrdma::pvrdma
