// The programs that the daemon's processes execute.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::vrdmad {

// Opens (O_PATH) the program `name` in the directory of this process's own executable or in
// ../lib/vrdma from there. It must be as safe as that from changes by other users than root; if
// neither is, as in a build tree, `risk` gets a warning. ENOENT: there is none.
[[nodiscard]] base::Result<base::Fd> open_program(const std::string& name,
                                                  std::string* risk = nullptr);
// Opens (O_PATH) the program at `path`.
[[nodiscard]] base::Result<base::Fd> open_program_at(const std::string& path);

}  // namespace vrdma::vrdmad
