// What the server of the page may do once it serves.
#pragma once

#include "core/base/error.h"

namespace vrdma::cli::web {

// Permanently: if this process is root, its root is an empty directory and it becomes nobody. It
// can get no privilege, is traced by nobody, and only serves the sockets and timers that it has:
// other system calls fail with ENOSYS. Before threads exist. With a sanitizer, whose runtime needs
// other calls and files, only the user is changed.
[[nodiscard]] base::Result<void> confine();

}  // namespace vrdma::cli::web
