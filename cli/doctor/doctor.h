// `vrdmactl doctor`: finds out why a program sees no vdevice, or cannot open one.
//
// Begin with examine(). The findings follow the path of a program to its device: the daemon, a
// vdevice in the program's network namespace, the run directory in its mount namespace, the session
// socket, the library, the session, and perhaps a peer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "core/base/error.h"
#include "core/verbs/gid.h"

namespace vrdma::cli::doctor {

// The subject: one of the first three; if none is set, a program that this process would start.
struct Question {
  std::optional<int> pid;
  std::string netns;                 // as in vdev create
  std::vector<std::string> command;  // examined, not run
  std::optional<verbs::Gid> peer;    // whether its vdevices reach it
  std::string run_dir;               // of the daemon
};

// Errors: no such process, namespace or program. Runs the loader on `command` in the mode in which
// it lists libraries and does not start the program.
[[nodiscard]] base::Result<Findings> examine(const Question& question);

}  // namespace vrdma::cli::doctor
