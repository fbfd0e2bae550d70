// A process of the daemon's own that is forked at its start: the same program, with less.
#pragma once

#include <cstdint>

#include "core/base/fd.h"

namespace vrdma::vrdmad {

// In the child, before it has threads: it is called `name`, nothing is open but `socket`, which is
// returned under another number, and its standard streams lead nowhere: it may not be able to end,
// and no tenant's file may become one of them. It keeps of its capabilities `capabilities` (a bit
// for each number) and cannot get others.
[[nodiscard]] base::Fd become_child(const char* name, base::Fd socket, uint64_t capabilities);

}  // namespace vrdma::vrdmad
