// SIGTERM and SIGINT as a descriptor, for a program that ends by them.
#pragma once

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::base {

// Blocks both in this thread and in those that it starts, and returns what is readable when one has
// come (signalfd(2)), non-blocking. Ignores SIGPIPE. Call before threads exist.
[[nodiscard]] Result<Fd> catch_end_signals();

}  // namespace vrdma::base
