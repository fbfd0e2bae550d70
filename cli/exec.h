// `vrdmactl exec NAME -- CMD...`: a program in a vdevice's network namespace, on our libraries.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

// The file of a vdevice's netns as given at creation: a name (below /run/netns, see ip-netns(8)),
// an absolute path, or "pid:N".
[[nodiscard]] std::string netns_path(const std::string& netns);

// Moves this thread into the netns of `vdev`. ESTALE: the name or pid now means another one.
[[nodiscard]] base::Result<void> enter_netns(const v1::Vdev& vdev);

// lib/vrdma beside the directory of this executable, in the build tree as where it is installed.
[[nodiscard]] base::Result<std::string> library_dir();

// Replaces this process by `command` (searched in PATH) in the netns of `vdev`, with
// LD_LIBRARY_PATH and VRDMA_RUN_DIR set, in the environment of cli/environment.h or, where that
// cannot be made, without it after a line on stderr. If the command cannot be run, exits as
// run_program() says. Returns only errors: ESTALE if the name or pid now means another netns.
[[nodiscard]] base::Error exec_in(const v1::Vdev& vdev, const std::string& run_dir,
                                  const std::vector<std::string>& command);

}  // namespace vrdma::cli
