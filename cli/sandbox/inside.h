// What happens in the sandbox: the daemon, its vdevices, the commands.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/sandbox/options.h"
#include "cli/sandbox/space.h"
#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

// The programs beside this one, in a build tree as where they are installed.
struct Programs {
  std::string self, vrdmactl, vrdmad, bin_dir;
};
[[nodiscard]] base::Result<Programs> find_programs();

// In the first child of the process that called enter_space(), which gets `log` for the daemon's
// log, or -1. `parent_gone` becomes readable when that process ends, and so does the sandbox then.
// The exit status, after a line if it is kFailed.
[[nodiscard]] int run_inside(const Options& options, const Space& space, const Programs& programs,
                             int log, base::Fd parent_gone);

// The words that begin a command's process inside of the sandbox: see begin_command().
extern const char* const kInner;

// vrdma-sandbox --inner USERNS BIN_DIR COMMAND...: enters the user namespace, unless that is "-",
// puts BIN_DIR at the end of PATH, and becomes the command. The exit status if it does not.
[[nodiscard]] int begin_command(int argc, char** argv);

}  // namespace vrdma::cli::sandbox
