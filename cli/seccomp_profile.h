// The seccomp profile of a container engine, with a rule by which memory can be in place.
//
// The profiles of Docker and Podman forbid userfaultfd(2), by which the library sees what a program
// does to registered memory; without it, such memory is reached. They guard against a userfaultfd
// that stops the kernel in the middle of a copy. The rule admits only one that cannot: its flags
// have UFFD_USER_MODE_ONLY (Linux 5.11, userfaultfd(2)).
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::cli {

// `profile`: JSON, as --security-opt seccomp=FILE of the engines takes it. Returns JSON with a
// final newline; a profile that permits the call is returned as it is. EINVAL: it is no such
// profile, or it permits all but named calls and names this one.
[[nodiscard]] base::Result<std::string> with_userfaultfd(const std::string& profile);

}  // namespace vrdma::cli
