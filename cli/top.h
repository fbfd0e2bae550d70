// `vrdmactl top`: the present activity of each vdevice, from two readings of the daemon's counters.
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

// The activity of a vdevice between two readings.
struct TopRow {
  std::string name, tenant, netns;
  std::string who;  // NAMESPACE/NAME of its pod; empty: none
  uint64_t id = 0;
  uint64_t sessions = 0, qps = 0;
  struct Rate {
    double requests = 0, bytes = 0;  // per second
  };
  Rate direct;         // work requests that programs execute
  Rate worker;         // work requests that vrdmad's workers execute
  double refused = 0;  // per second: refused or failed requests, quotas and work
};

// One row for each vdevice in `now`, the busiest first. Counts from 0 if `before` lacks the vdevice
// or has a higher value, because another daemon counted that.
[[nodiscard]] std::vector<TopRow> top_rows(const std::vector<v1::Counter>& before,
                                           const std::vector<v1::Counter>& now, double seconds);
// Sets TopRow::who.
void name_pods(const std::vector<v1::Vdev>& vdevs, std::vector<TopRow>* rows);

// "950", "1.2k", "3.4M": at most three digits.
[[nodiscard]] std::string short_number(double number);

struct TopSettings {
  double interval = 1;  // seconds
  bool once = false;    // one measurement only
  Format format = Format::kTable;
};

// On a terminal, redraws a screen at each interval until q or ctrl-C. Otherwise prints a table or a
// line of JSON per interval, until the output cannot be written.
[[nodiscard]] base::Result<void> run_top(api::Client& client, const TopSettings& settings);

}  // namespace vrdma::cli
