// Writes what vrdmad has as a file of apply.
#pragma once

#include <string>

#include "cli/apply/objects.h"

namespace vrdma::cli::apply {

// Without what belongs to containers and processes. Applied to `state`, it changes nothing.
[[nodiscard]] std::string written(const State& state);

}  // namespace vrdma::cli::apply
