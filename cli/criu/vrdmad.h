// vrdmad as the plugin knows it: by requests to R/checkpoint.sock
// (vrdmad/admin/checkpoint_server.h), so that no library comes into CRIU. Each waits up to 30 s for
// its answer.
#pragma once

#include <string>

#include "cli/criu/program.h"
#include "core/base/error.h"

namespace vrdma::cli::criu {

// R: VRDMA_RUN_DIR, as vrdmactl has it.
[[nodiscard]] std::string run_dir();
// The process that listens at R/checkpoint.sock; -1: none.
[[nodiscard]] pid_t control_pid();

[[nodiscard]] base::Result<ParkedProgram> park(pid_t pid);
// One that is parked, with its peers as they are now.
[[nodiscard]] base::Result<ParkedProgram> show(const std::string& token);
// The same of one that is detached by this, with what can be carried elsewhere (Shared::portable).
[[nodiscard]] base::Result<ParkedProgram> detach(const std::string& token);
// The sessions and connections, which have `portable`, with the sockets of the vdevices on which
// they can go on in the network namespace of the process, and that of rdma_cm.
[[nodiscard]] base::Result<ParkedProgram> place(pid_t pid, const ParkedProgram& program);
[[nodiscard]] base::Result<void> attach(pid_t pid, const ParkedProgram& program);
[[nodiscard]] base::Result<void> resume(const std::string& token);
[[nodiscard]] base::Result<void> abandon(const std::string& token);

}  // namespace vrdma::cli::criu
