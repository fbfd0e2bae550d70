// The command line of vrdma-sandbox.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// Exit statuses of vrdma-sandbox itself, as of env(1) and timeout(1); others are the command's.
constexpr int kUsage = 2;
constexpr int kFailed = 125;     // the sandbox could not be made
constexpr int kCannotRun = 126;  // the command is there, but cannot be run
constexpr int kNotFound = 127;   // the command is not there
constexpr int kBySignal = 128;   // plus the signal that ended the command

using Words = std::vector<std::string>;

struct Options {
  unsigned vdevices = 1;     // of the command; with `pair` one for each of the two
  bool pair = false;         // `commands` are two: server, client
  bool two_tenants = false;  // each vdevice is a tenant's own; all are in one fabric
  bool stay_root = false;    // the command is root in the sandbox
  double wait = 5;           // seconds, for the server to listen
  std::string log;           // gets the daemon's log; empty: none
  Words vdev_options;        // of `vrdmactl vdev create`: --quota and the like
  std::vector<Words> commands;
};

// Prints one line on standard error and returns `status`, to exit with.
int complain(const std::string& sentence, int status = kFailed);

// What stands before the first "--" is understood; what follows is the command, or two of them with
// another "--" in between. On --help and --version, and on a mistake, after printing: `*status` is
// what to exit with, and the result is false.
[[nodiscard]] bool parse(int argc, char** argv, Options* options, int* status);

}  // namespace vrdma::cli::sandbox
