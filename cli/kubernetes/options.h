// The command line of vrdma-device-plugin.
#pragma once

#include <string>

#include "cli/kubernetes/dra/driver.h"
#include "cli/kubernetes/plugin/plugin.h"

namespace vrdma::cli::kubernetes {

struct Options {
  bool dra = false;  // the mode: a DRA driver, and not a device plugin
  Plugin::Places plugin;
  Driver::Places driver;
  std::string listen;  // for scrapers and probes; empty: nowhere
};

// On --help, --version or a mistake: prints, sets `*status` to the exit status and returns false.
[[nodiscard]] bool parse(int argc, char** argv, Options* options, int* status);

}  // namespace vrdma::cli::kubernetes
