// What each helper process of the daemon (vrdmad/helper_main.cc) does at its start.
#pragma once

#include <cstdint>
#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Called when the process has opened all that it cannot open later: drops what privileges it has
// too many, confines its system calls, and may tell the daemon, at the other end of `socket`.
using Confine = std::function<void(const base::Fd& socket)>;

// A pidfd of the daemon, the parent. Call before the system calls are confined.
[[nodiscard]] base::Fd open_parent();
// Waits until there is a message on `socket`, or its end. False: the parent has ended, even if
// another process has its socket by now.
[[nodiscard]] bool wait_for_message(const base::Fd& socket, const base::Fd& parent);

// Call before the process has threads. Names it `name`, keeps only `socket` open, under the
// returned number, and redirects the standard streams to /dev/null, so that no tenant's
// file can get their numbers. Keeps only the capabilities in the bit mask `capabilities` (bit =
// number) and cannot gain others.
[[nodiscard]] base::Fd become_child(const char* name, base::Fd socket, uint64_t capabilities);

}  // namespace vrdma::vrdmad
