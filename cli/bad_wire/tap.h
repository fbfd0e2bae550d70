// One end of the link: a tap, an Ethernet interface whose other end is a descriptor.
//
// A tap has no offloads unless its owner asks for them: the kernel computes all checksums and cuts
// segments (GSO) into single packets before they come out, and merges none (GRO) on the way in.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::cli::bad_wire {

// Makes the interface `name` with that MTU in the network namespace `netns` (a path), down. It
// ends with the descriptor, which does not block. The calling process must have one thread.
[[nodiscard]] base::Result<base::Fd> make_tap(const std::string& netns, const std::string& name,
                                              unsigned mtu);

}  // namespace vrdma::cli::bad_wire
