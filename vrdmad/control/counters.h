// Counters and gauges as the admin API and the metrics endpoint show them.
//
// docs/metrics.md lists all of them; a test compares.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "provisioning/ledger.h"
#include "qp1mux/endpoint.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/worker/worker.h"

namespace vrdma::vrdmad {

struct CounterScope {
  VdevKey vdevice;
  std::string tenant;
};

// All there is to count of one vdevice.
[[nodiscard]] std::vector<CounterRow> vdevice_rows(const CounterScope& scope, const VdeviceUse& use,
                                                   const std::vector<provisioning::Row>& quota,
                                                   uint64_t foreign, const qp1mux::Counters& cm);

// Why regions of it are reached and not in place: each reason that there was, and how often.
[[nodiscard]] std::vector<std::pair<std::string, uint64_t>> reached_by_reason(
    const VdeviceUse& use);

// Sums of vdevices' rows by tenant. What only grows must not fall when a vdevice goes, so the sums
// of those that have gone are kept, until their tenant is forgotten.
class TenantTotals {
 public:
  // A row of a vdevice. What counts a whole fabric or is a limit has no sum and is left out.
  void add(const CounterRow& row);
  // Forgets all tenants but these.
  void keep(const std::set<std::string>& tenants);
  // Scope "tenant/<name>".
  [[nodiscard]] std::vector<CounterRow> rows() const;

 private:
  using Key = std::pair<std::string, std::pair<std::string, std::string>>;  // name, label
  struct Sum {
    uint64_t value = 0;
    bool gauge = false;
  };
  std::map<std::string, std::map<Key, Sum>> sums_;
};

}  // namespace vrdma::vrdmad
