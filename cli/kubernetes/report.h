// What scrapers and probes read: /metrics, /healthz and /readyz.
#pragma once

#include <string>

#include "cli/kubernetes/dra/driver.h"
#include "cli/kubernetes/plugin/plugin.h"
#include "core/serve/http.h"

namespace vrdma::cli::kubernetes {

// Prometheus' text format 0.0.4.
[[nodiscard]] std::string metrics_text(const PluginStatus& status);
[[nodiscard]] std::string metrics_text(const DriverStatus& status);

// `not_ready`: why probes are answered with 503; empty: they are not.
[[nodiscard]] serve::HttpAnswer answer_to(const std::string& path, const std::string& metrics,
                                          const std::string& not_ready);

}  // namespace vrdma::cli::kubernetes
