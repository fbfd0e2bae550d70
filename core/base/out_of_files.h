// EMFILE and ENFILE: what failed says nothing about its object, such as that a process has ended.
#pragma once

#include <cerrno>

namespace vrdma::base {

// Whether `error`, an errno, means that this process or the host has too many open files.
[[nodiscard]] inline bool out_of_files(int error) { return error == EMFILE || error == ENFILE; }

}  // namespace vrdma::base
