// Carries out the steps of a plan.
#pragma once

#include <string>
#include <vector>

#include "api/client.h"
#include "cli/apply/plan.h"
#include "core/base/error.h"

namespace vrdma::cli::apply {

// Why a change was not made.
struct Failure {
  std::string sentence;   // empty: it was made
  bool is_undone = true;  // the object is as before
};
// For each of the plan's changes. A step that fails undoes the
// earlier ones of its object, as far as vrdmad lets it; other objects are still changed. An error:
// vrdmad does not answer any more, so that nobody knows how the last step ended; a new plan does.
[[nodiscard]] base::Result<std::vector<Failure>> run(api::Client& client, const Plan& plan);

}  // namespace vrdma::cli::apply
