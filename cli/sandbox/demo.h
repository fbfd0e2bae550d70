// vrdma-sandbox --demo: three sandboxes, in which two programs (cli/pingpong) exchange messages.
#pragma once

#include "cli/sandbox/inside.h"

namespace vrdma::cli::sandbox {

// Prints what each of them measured, why, and the command that does the same with another program.
// Takes some seconds. Returns the exit status: 0, or that of the first sandbox that failed.
[[nodiscard]] int show_demo(const Programs& programs);

}  // namespace vrdma::cli::sandbox
