// What scrapers and probes read: /metrics, /healthz and /readyz.
#pragma once

#include <string>

#include "cli/kubernetes/plugin/plugin.h"
#include "core/serve/http.h"

namespace vrdma::cli::kubernetes {

// Prometheus' text format 0.0.4.
[[nodiscard]] std::string metrics_text(const PluginStatus& status);

[[nodiscard]] serve::HttpAnswer answer_to(const std::string& path, const PluginStatus& status);

}  // namespace vrdma::cli::kubernetes
