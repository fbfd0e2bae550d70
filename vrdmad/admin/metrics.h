// The Prometheus endpoint: GET /metrics on a unix socket or on a loopback port (core/serve/http.h).
//
// It is opt-in and for this host only, because it shows names and activity of tenants. A listening
// socket on the control loop costs nothing until a client connects; then prometheus-cpp renders the
// rows of the admin API's counters as text.
//
// Control thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/serve/http.h"
#include "vrdmad/admin/backend.h"

namespace vrdma::vrdmad {

// `rows` in text format 0.0.4; docs/metrics.md describes the names and labels.
[[nodiscard]] std::string metrics_text(const std::vector<CounterRow>& rows);

// To call its argument once with the rows, now or later, on the loop.
using MetricsSource = std::function<void(std::function<void(std::vector<CounterRow>)>)>;

// EINVAL: serve_metrics() would refuse this address. An empty one is none.
[[nodiscard]] base::Result<void> check_metrics_address(const std::string& address);
// `address`: as serve::HttpServer::start(), of this host. `loop` must outlive the server.
[[nodiscard]] base::Result<std::unique_ptr<serve::HttpServer>> serve_metrics(
    base::EventLoop& loop, const std::string& address, MetricsSource source);

}  // namespace vrdma::vrdmad
