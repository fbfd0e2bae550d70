// What the mappings of a process permit: its /proc/PID/maps (proc(5)).
#pragma once

#include <cstdint>

#include "core/base/fd.h"

namespace vrdma::rdma {

// Whether all of [addr, addr + length) is mapped, for writing if `write`, else for reading. A part
// below the stack counts as the stack, which grows when it is touched. May take as long as the
// process likes. Any thread.
[[nodiscard]] bool mappings_permit(const base::Fd& maps, uint64_t addr, uint64_t length,
                                   bool write);

// The same where the kernel answers no questions (core/base/mapping_query.h): `maps` is read from
// its start.
[[nodiscard]] bool text_permits(const base::Fd& maps, uint64_t addr, uint64_t length, bool write);

}  // namespace vrdma::rdma
