// The Prometheus endpoint: GET /metrics on a unix socket or on a port (core/serve/http.h).
//
// It is opt-in, because it shows names and activity of tenants. For this host alone, a listening
// socket on the control loop costs nothing until a client connects; then prometheus-cpp renders the
// rows of the admin API's counters as text. For other hosts there is remote_metrics.h.
//
// Control thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/serve/http.h"
#include "core/serve/tls.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/admin/scrapes.h"

namespace vrdma::vrdmad {

constexpr const char* kMetricsPath = "/metrics";
[[nodiscard]] inline serve::HttpAnswer no_such_path() {
  return {"404 Not Found", "only /metrics\n"};
}

// `rows` in text format 0.0.4; docs/metrics.md describes the names and labels.
[[nodiscard]] std::string metrics_text(const std::vector<CounterRow>& rows);
// What the endpoint itself counts.
[[nodiscard]] std::vector<CounterRow> refusal_rows(const serve::HttpRefusals& refusals);

// Where the metrics are served, and what a client must prove. Of this host alone, if there are no
// files.
struct MetricsPlace {
  std::string address;  // as serve::HttpServer::listen(); empty: nowhere
  serve::TlsFiles files;
  [[nodiscard]] bool is_remote() const { return !files.certificate.empty(); }
};
// EINVAL: the options do not fit together. The sentence names them.
[[nodiscard]] base::Result<void> check_metrics(const MetricsPlace& place);

// On this host alone. `loop` and `scrapes` must outlive the server.
[[nodiscard]] base::Result<std::unique_ptr<serve::HttpServer>> serve_metrics(
    base::EventLoop& loop, const std::string& address, Scrapes& scrapes);

}  // namespace vrdma::vrdmad
