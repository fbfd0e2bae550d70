#include "vrdmad/admin/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>

#include "core/base/option_check.h"
#include "core/base/printable.h"
#include "vrdmad/admin/metric_families.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Result;
using serve::HttpServer;

namespace {

constexpr const char* kMetrics = "metrics";
constexpr const char* kSummed = ", summed over the tenant's present and past vdevices";

bool is_tenant(const CounterRow& row) { return row.scope.starts_with("tenant/"); }

}  // namespace

std::string metrics_text(const std::vector<CounterRow>& rows) {
  std::map<std::string, prometheus::MetricFamily> families;
  for (const auto& row : rows) {
    if (row.fixed && (row.value == 0 || row.gauge)) continue;
    const MetricFamily* const its = family_of(row);
    if (its == nullptr) continue;
    const bool of_tenant = is_tenant(row);
    auto& family = families[metric_name(*its, of_tenant)];
    if (family.help.empty()) {
      family.name = metric_name(*its, of_tenant);
      family.help = std::string(its->help) + (of_tenant ? kSummed : "");
      family.type = its->gauge ? prometheus::MetricType::Gauge : prometheus::MetricType::Counter;
    }
    prometheus::ClientMetric metric;
    if (of_tenant) {
      metric.label.push_back({"tenant", row.tenant});
    } else if (its->of != MetricFamily::Of::kDaemon) {
      metric.label.push_back({"vdevice", row.scope});
      metric.label.push_back({"netns", base::printable(row.netns)});
      metric.label.push_back({"id", std::to_string(row.vdev_id)});
      metric.label.push_back({"tenant", row.tenant});
    }
    for (const auto& [key, value] : row.facts)
      metric.label.push_back({key, base::printable(value)});
    if (!row.label.first.empty()) metric.label.push_back({row.label.first, row.label.second});
    (its->gauge ? metric.gauge.value : metric.counter.value) =
        static_cast<double>(row.value) * its->unit;
    family.metric.push_back(std::move(metric));
  }
  std::vector<prometheus::MetricFamily> sorted;
  for (auto& [name, family] : families) sorted.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(sorted);
}

std::vector<CounterRow> refusal_rows(const serve::HttpRefusals& refusals) {
  std::vector<CounterRow> rows;
  for (const auto& [reason, count] : {std::pair{"crowded", refusals.crowded},
                                      {"late", refusals.late},
                                      {"unproven", refusals.unproven},
                                      {"unauthorized", refusals.unauthorized},
                                      {"malformed", refusals.malformed}})
    rows.push_back({"daemon", "metrics_refused", count, {"reason", reason}});
  return rows;
}

Result<void> check_metrics(const MetricsPlace& place) {
  const serve::TlsFiles& files = place.files;
  const bool any = !files.certificate.empty() || !files.key.empty() || !files.token.empty() ||
                   !files.client_ca.empty();
  if (place.address.empty() && !any) return {};
  if (place.address.empty())
    return fail(EINVAL, "options of metrics for other hosts need --metrics ADDRESS:PORT");
  if (auto valid = HttpServer::check(place.address, HttpServer::Reach::kNetwork); !valid)
    return base::pass(std::move(valid).error(), kMetrics);
  if (!any) {
    if (HttpServer::check(place.address, HttpServer::Reach::kHost)) return {};
    return fail(EINVAL, "metrics: other hosts may reach " + base::in_quotes(place.address) +
                            ": give --metrics-cert and --metrics-key, and --metrics-token-file or "
                            "--metrics-client-ca; or serve this host alone, by 127.0.0.1:PORT");
  }
  if (HttpServer::path_of(place.address))
    return fail(EINVAL,
                "metrics: a unix socket is protected by its mode: leave out the options "
                "--metrics-cert, -key, -token-file and -client-ca");
  if (files.certificate.empty() || files.key.empty())
    return fail(EINVAL, "metrics: give both --metrics-cert and --metrics-key");
  if (files.token.empty() && files.client_ca.empty())
    return fail(EINVAL,
                "metrics: every host could read them: give --metrics-token-file, or "
                "--metrics-client-ca, or both");
  return {};
}

Result<std::unique_ptr<HttpServer>> serve_metrics(base::EventLoop& loop, const std::string& address,
                                                  Scrapes& scrapes) {
  // Known when the server is there.
  const auto own = std::make_shared<std::shared_ptr<const serve::HttpRefusals>>();
  auto server = HttpServer::start(
      loop, address, HttpServer::Reach::kHost,
      [&scrapes, own](const serve::HttpRequest& request, const HttpServer::Answer& answer) {
        if (request.path != kMetricsPath) return answer(no_such_path());
        scrapes.ask([answer, own](const Scrapes::Text& text) {
          answer({"200 OK", *text + metrics_text(refusal_rows(**own))});
        });
      });
  if (!server) return base::pass(std::move(server).error(), kMetrics);
  *own = (*server)->refusals();
  return server;
}

}  // namespace vrdma::vrdmad
