// Carries out a plan in the mount namespace of this process, whose file system is also the host's.
#pragma once

#include "cli/mounts/plan.h"
#include "core/base/error.h"

namespace vrdma::cli {

// Lists a directory in this process's file system; does not follow links.
[[nodiscard]] std::optional<std::vector<Entry>> look_here(const std::string& directory);

// Needs CAP_SYS_ADMIN and a private mount namespace, because nothing is undone. After an error, the
// earlier steps have taken effect. If a kSysfs step finds the namespace's sysfs already mounted, or
// must not mount it, the plan ends there: the later steps are done already. Skips entries that
// vanish meanwhile.
[[nodiscard]] base::Result<void> render(const Plan& plan);

}  // namespace vrdma::cli
