// Counters and gauges for the admin API and the metrics endpoint.
//
// docs/metrics.md lists all of them; a test compares it with the code.
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
#include "vrdmad/worker/vdevice_page.h"

namespace vrdma::vrdmad {

struct CounterScope {
  VdevKey vdevice;
  std::string tenant;
};

// What a vdevice may do now, and so which of its counters can change.
struct VdeviceAbilities {
  bool direct = true;    // its programs may carry out requests themselves
  bool paced = false;    // its requests are counted against a rate
  bool packets = false;  // it may have raw packet queue pairs
  bool network = false;  // its fabric reaches the network
};

// All counters and gauges of one vdevice.
[[nodiscard]] std::vector<CounterRow> vdevice_rows(const CounterScope& scope, const VdeviceUse& use,
                                                   const VdeviceAbilities& may,
                                                   const std::vector<provisioning::Row>& quota,
                                                   uint64_t foreign, const qp1mux::Counters& cm);

// `usage` has the kinds of `quota` that are in use and limited.
[[nodiscard]] ActivityRow activity_row(uint64_t vdev_id, const VdeviceUse& use,
                                       const std::vector<provisioning::Row>& quota);

// Events of packets, by the names of hw_counters in the kernel's drivers (rxe, mlx5) where these
// have one.
[[nodiscard]] std::vector<std::pair<const char*, uint64_t>> network_events(
    const transport::roce::Counters& network);

// How many of its regions are reached instead of put in place, for each reason that occurred.
[[nodiscard]] std::vector<std::pair<std::string, uint64_t>> reached_by_reason(
    const VdeviceUse& use);

// Sums of the vdevices' rows by tenant. A counter must not fall when a vdevice is deleted, so the
// sums of deleted vdevices are kept until their tenant is forgotten.
class TenantTotals {
 public:
  // Adds a vdevice's row. Counters of a whole fabric and limits have no sum and are left out.
  void add(const CounterRow& row);
  // Forgets all other tenants.
  void keep(const std::set<std::string>& tenants);
  // Scope "tenant/<name>".
  [[nodiscard]] std::vector<CounterRow> rows() const;

 private:
  using Key = std::pair<std::string, std::pair<std::string, std::string>>;  // name, label
  struct Sum {
    uint64_t value = 0;
    bool gauge = false;
    bool fixed = true;  // of all vdevices
  };
  std::map<std::string, std::map<Key, Sum>> sums_;
};

}  // namespace vrdma::vrdmad
