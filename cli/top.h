// `vrdmactl top`: the present activity of vdevices, from two readings of the daemon's counters.
#pragma once

#include <string>

#include "cli/filter.h"
#include "cli/output.h"
#include "core/base/error.h"

namespace vrdma::api {
class Client;
}

namespace vrdma::cli {

struct TopSettings {
  double interval = 1;  // seconds
  bool once = false;    // one measurement only
  Format format = Format::kTable;
  std::string sort = "bytes";  // one of top_sort_keys()
  bool by_process = false;
  Filter filter;
  Style style;
};

// On a terminal, redraws a screen at each interval until q or ctrl-C; < and > change the order, p
// changes between vdevices and processes. Otherwise prints a table or a line of JSON per interval,
// until the output cannot be written.
[[nodiscard]] base::Result<void> run_top(api::Client& client, const TopSettings& settings);

}  // namespace vrdma::cli
