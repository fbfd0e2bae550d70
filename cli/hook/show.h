// Carries out a plan of mounts (cli/mounts/plan.h) in a container that its runtime has not entered
// yet.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/hook/root.h"
#include "cli/mounts/plan.h"

namespace vrdma::cli::hook {

// Clones of what a plan binds from the host, by the host's path.
using Sources = std::map<std::string, base::Fd>;

// Every source that is not the program's own must be in `sources`, and each is used once. The
// tmpfs that cover a directory become read-only at the end. Skips entries that vanish meanwhile.
[[nodiscard]] base::Result<void> show(const Root& root, const Plan& plan, const Sources& sources);

}  // namespace vrdma::cli::hook
