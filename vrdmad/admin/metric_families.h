// The families of the metrics: name, type, unit and help text of what the counters' rows become.
// docs/metrics.md describes each; a test compares the two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

struct MetricFamily {
  // Those of kVdevice have sums by tenant.
  enum class Of : uint8_t { kVdevice, kVdeviceOnly, kDaemon };
  const char* row;   // CounterRow::name
  const char* name;  // between vrdma_ (vrdma_tenant_) and _total
  Of of;
  bool gauge;
  const char* label;  // CounterRow::label's key; empty: none
  const char* help;
  double unit = 1;  // of the row, in that of the metric: microseconds are 1e-6 seconds
};

[[nodiscard]] const std::vector<MetricFamily>& metric_families();
// nullptr: there is none, so Prometheus does not get the row.
[[nodiscard]] const MetricFamily* family_of(const CounterRow& row);

// vrdma_work_bytes_total, vrdma_tenant_work_bytes_total, vrdma_daemon_gids_refused_total
[[nodiscard]] std::string metric_name(const MetricFamily& family, bool of_tenant);

}  // namespace vrdma::vrdmad
