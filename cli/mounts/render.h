// A plan, carried out in the mount namespace of this process, whose file system is the host's too.
#pragma once

#include "cli/mounts/plan.h"
#include "core/base/error.h"

namespace vrdma::cli {

// What this process finds in its file system; links are not followed.
[[nodiscard]] std::optional<std::vector<Entry>> look_here(const std::string& directory);

// Needs CAP_SYS_ADMIN, and a mount namespace that is this process's own: nothing is undone. After
// an error, the steps before it have happened. A kSysfs that is there already, because the
// namespace's own is mounted, or that must not be mounted, ends the plan: what follows is there
// too. What goes while it is carried out is left out.
[[nodiscard]] base::Result<void> render(const Plan& plan);

}  // namespace vrdma::cli
