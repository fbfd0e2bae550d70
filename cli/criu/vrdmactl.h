// vrdmad as the plugin knows it: by the commands of vrdmactl, so that no library comes into CRIU.
//
// vrdmactl is found in PATH, and vrdmad by VRDMA_RUN_DIR, as a shell would.
#pragma once

#include <string>

#include "cli/criu/program.h"
#include "core/base/error.h"

namespace vrdma::cli::criu {

[[nodiscard]] base::Result<ParkedProgram> park(pid_t pid);
// One that is parked, with its peers as they are now.
[[nodiscard]] base::Result<ParkedProgram> show(const std::string& token);
// The same of one that is detached by this, with what can be carried elsewhere (Shared::portable).
[[nodiscard]] base::Result<ParkedProgram> detach(const std::string& token);
// The sessions, which have portable(), with the sockets of the vdevices on which they can go on in
// the network namespace of the process.
[[nodiscard]] base::Result<std::vector<Shared>> place(pid_t pid, const ParkedProgram& program);
[[nodiscard]] base::Result<void> attach(pid_t pid, const ParkedProgram& program);
[[nodiscard]] base::Result<void> resume(const std::string& token);
[[nodiscard]] base::Result<void> abandon(const std::string& token);

}  // namespace vrdma::cli::criu
