// Limits of this process (setrlimit(2)) and of its control group that a sandbox would exceed.
// main() compares first: a sandbox beyond them would fail or wait where nothing tells why.
#pragma once

#include <sys/resource.h>

#include "cli/sandbox/options.h"
#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// What the programs of a sandbox take.
struct Needs {
  rlim_t files = 0;          // of one process
  rlim_t address_space = 0;  // bytes of one process
  rlim_t data = 0;           // likewise
  unsigned threads = 0;      // of all processes together
};
[[nodiscard]] Needs needs_of(const Options& options);

// The limits of a process; RLIM_INFINITY: none.
struct Limits {
  rlim_t files, address_space, data, file_size;
};
[[nodiscard]] Limits limits_of_this_process();

// The first limit that is too small, and what to do. `startable`: see startable_threads().
[[nodiscard]] base::Result<void> compare(const Needs& needs, const Limits& limits,
                                         unsigned startable);

// How many threads more this user and this control group may start, at most `wanted`. Starts them,
// in a child process that ends.
[[nodiscard]] unsigned startable_threads(unsigned wanted);

}  // namespace vrdma::cli::sandbox
