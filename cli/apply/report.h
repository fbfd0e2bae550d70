// Prints what a plan changes, or has changed.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/apply/plan.h"
#include "cli/output.h"

namespace vrdma::cli::apply {

// "create vdev red/a0"
[[nodiscard]] std::string text_of(const Change& change);

// Those without a failure; JSON has all, with "error". `failures`: as run() returns them; none: no
// change was tried.
void print(std::ostream& out, Format format, const std::vector<Change>& changes,
           const std::vector<std::string>& failures);

}  // namespace vrdma::cli::apply
