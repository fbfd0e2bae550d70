// A helper process that the daemon forks at its start. It runs the same program with fewer
// privileges.
#pragma once

#include <cstdint>
#include <functional>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Forks. The child calls `serve`, which does not return, with one end of a pair of sockets
// (SOCK_SEQPACKET). Returns the other end. `name`: of the process, for an error.
[[nodiscard]] base::Result<base::Fd> fork_child(const char* name,
                                                const std::function<void(base::Fd)>& serve);

// A pidfd of the parent. Call in the child before its system calls are confined.
[[nodiscard]] base::Fd open_parent();
// Waits until there is a message on `socket`, or its end. False: the parent has ended, even if
// another process has its socket by now.
[[nodiscard]] bool wait_for_message(const base::Fd& socket, const base::Fd& parent);

// Call in the child before it has threads. Names the process `name`, keeps only `socket` open,
// under the returned number, and redirects the standard streams to /dev/null, so that no tenant's
// file can get their numbers. Keeps only the capabilities in the bit mask `capabilities` (bit =
// number) and cannot gain others.
[[nodiscard]] base::Fd become_child(const char* name, base::Fd socket, uint64_t capabilities);

}  // namespace vrdma::vrdmad
