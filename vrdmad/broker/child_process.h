// A helper process that the daemon forks at its start. It runs the same program with fewer
// privileges.
#pragma once

#include <cstdint>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Call in the child before it has threads. Names the process `name`, keeps only `socket` open,
// under the returned number, and redirects the standard streams to /dev/null, so that no tenant's
// file can get their numbers. Keeps only the capabilities in the bit mask `capabilities` (bit =
// number) and cannot gain others.
[[nodiscard]] base::Fd become_child(const char* name, base::Fd socket, uint64_t capabilities);

}  // namespace vrdma::vrdmad
