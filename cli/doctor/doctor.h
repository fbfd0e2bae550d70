// `vrdmactl doctor`: why a program sees no vdevice, or why one cannot be opened.
//
// Begin with examine(). What it finds is in the order of a program's way to its device: the daemon,
// a vdevice in the program's network namespace, the run directory in its mount namespace, the
// session socket, the library, the session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "core/base/error.h"

namespace vrdma::cli::doctor {

// One of the first three, or none: this process itself, as a program that it would start.
struct Question {
  std::optional<int> pid;
  std::string netns;                 // as of vdev create
  std::vector<std::string> command;  // is looked at, not run
  std::string run_dir;               // of the daemon
};

// Errors: there is no such process, namespace or program. Runs the loader on `command`, in the mode
// in which it lists libraries and starts no program.
[[nodiscard]] base::Result<Findings> examine(const Question& question);

}  // namespace vrdma::cli::doctor
