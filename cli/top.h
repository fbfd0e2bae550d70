// `vrdmactl top`: what each vdevice does now, from two looks at the daemon's counters.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "core/base/error.h"

namespace vrdma::api {
class Client;
}

namespace vrdma::cli {

// A vdevice between two looks.
struct TopRow {
  std::string name, tenant, netns;
  uint64_t id = 0;
  uint64_t sessions = 0, qps = 0;
  struct Rate {
    double requests = 0, bytes = 0;  // a second
  };
  Rate direct;         // work requests that programs carry out themselves
  Rate worker;         // those of vrdmad's workers
  double refused = 0;  // a second: requests, quotas and work that were refused or failed
};

// Rows of vdevices that `now` has, the busiest first. One that `before` has not, or of which it has
// more (of another daemon), begins at 0.
[[nodiscard]] std::vector<TopRow> top_rows(const std::vector<v1::Counter>& before,
                                           const std::vector<v1::Counter>& now, double seconds);

// "950", "1.2k", "3.4M": three digits at least significant.
[[nodiscard]] std::string short_number(double number);

struct TopSettings {
  double interval = 1;  // seconds
  bool once = false;    // one measurement, then the end
  Format format = Format::kTable;
};

// On a terminal a screen that is drawn anew each interval, until q or ctrl-C; otherwise one table,
// or one line of JSON, an interval, until the output cannot be written.
[[nodiscard]] base::Result<void> run_top(api::Client& client, const TopSettings& settings);

}  // namespace vrdma::cli
