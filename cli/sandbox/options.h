// The command line of vrdma-sandbox.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli::sandbox {

// Exit statuses of vrdma-sandbox itself, as of timeout(1), beside those of run_program(); others
// are the command's.
constexpr int kUsage = 2;
constexpr int kFailed = 125;    // the sandbox could not be made
constexpr int kBySignal = 128;  // plus the signal that ended the command

using Words = std::vector<std::string>;

struct Options {
  bool demo = false;         // show_demo(), and nothing else
  unsigned vdevices = 1;     // for the command; with `pair` one for each of the two
  bool pair = false;         // `commands` are server and client
  bool two_tenants = false;  // each vdevice has its own tenant; all are in one fabric
  bool stay_root = false;    // the command is root in the sandbox
  double wait = 5;           // seconds that the server may take to listen
  std::string log;           // receives the daemon's log; empty: none
  Words vdev_options;        // for `vrdmactl vdev create`: --quota etc.
  Words wire;                // options of vrdma-bad-wire; empty: the link is a good one
  std::vector<Words> commands;
};

// Prints one line on standard error and returns `status`, the exit status.
int complain(const std::string& sentence, int status = kFailed);

// Parses the words before the first "--"; the command follows it, or two commands separated by
// another "--". On --help, --version or a mistake: prints, sets `*status` to the exit status and
// returns false.
[[nodiscard]] bool parse(int argc, char** argv, Options* options, int* status);

}  // namespace vrdma::cli::sandbox
