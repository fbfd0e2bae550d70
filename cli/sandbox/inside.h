// The process inside the sandbox: starts the daemon, creates the vdevices, runs the commands.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/options.h"
#include "cli/sandbox/space.h"
#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

// The programs in this program's build tree or installation.
struct Programs {
  std::string self, vrdmactl, vrdmad, bad_wire, pingpong, bin_dir;
};
[[nodiscard]] base::Result<Programs> find_programs();

// Runs in the first child of the process that called enter_space(). `log` receives the daemon's
// log; -1: none. `parent_gone` becomes readable when the parent ends; then the sandbox ends too.
// Returns the exit status; prints a line if that is kFailed.
[[nodiscard]] int run_inside(const Options& options, const Space& space, const Programs& programs,
                             int log, base::Fd parent_gone);

// The first argument of a command's process inside the sandbox: see begin_command().
extern const char* const kInner;

// vrdma-sandbox --inner USERNS BIN_DIR COMMAND...: enters the user namespace, unless it is "-",
// appends BIN_DIR to PATH, and executes the command. Returns the exit status on failure.
[[nodiscard]] int begin_command(int argc, char** argv);

}  // namespace vrdma::cli::sandbox
