#include "cli/kubernetes/report.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

namespace vrdma::cli::kubernetes {

namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Family {
 public:
  Family(const char* name, const char* help, prometheus::MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  void add(const Labels& labels, double value) {
    auto& metric = family_.metric.emplace_back();
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    (family_.type == prometheus::MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
        value;
  }
  [[nodiscard]] const prometheus::MetricFamily& get() const { return family_; }

 private:
  prometheus::MetricFamily family_;
};

}  // namespace

std::string metrics_text(const PluginStatus& status) {
  constexpr auto kGauge = prometheus::MetricType::Gauge;
  constexpr auto kCounter = prometheus::MetricType::Counter;
  Family devices("vrdma_plugin_devices", "devices advertised to the kubelet", kGauge);
  Family allocations("vrdma_plugin_allocations_total", "containers that got a device", kCounter);
  Family refusals("vrdma_plugin_refusals_total", "refused allocations", kCounter);
  Family registrations("vrdma_plugin_registrations_total", "registrations with the kubelet",
                       kCounter);
  Family restarts("vrdma_plugin_kubelet_restarts_total", "times that kubelet.sock was replaced",
                  kCounter);
  Family age("vrdma_plugin_stream_age_seconds",
             "time for which the kubelet has read the devices; 0: it does not", kGauge);
  Family unhealthy("vrdma_plugin_unhealthy", "1 for the reason why devices are unhealthy", kGauge);
  restarts.add({}, static_cast<double>(status.kubelet_restarts));
  for (const auto& each : status.resources) {
    const auto& name = each.class_name;
    const auto of = [&](const char* label, const std::string& text) {
      return Labels{{"class", name}, {label, text}};
    };
    devices.add(of("health", "healthy"), each.offer.healthy ? each.offer.devices : 0);
    devices.add(of("health", "unhealthy"), each.offer.healthy ? 0 : each.offer.devices);
    allocations.add({{"class", name}}, static_cast<double>(each.allocations));
    for (const auto& [reason, count] : each.refusals)
      refusals.add(of("reason", reason), static_cast<double>(count));
    registrations.add(of("result", "accepted"), static_cast<double>(each.registered));
    registrations.add(of("result", "failed"), static_cast<double>(each.refused));
    age.add({{"class", name}}, each.stream_age);
    if (each.unhealthy) unhealthy.add(of("reason", each.unhealthy->reason), 1);
  }
  std::vector<prometheus::MetricFamily> all;
  for (const auto* family :
       {&allocations, &devices, &restarts, &refusals, &registrations, &age, &unhealthy})
    if (!family->get().metric.empty()) all.push_back(family->get());
  return prometheus::TextSerializer().Serialize(all);
}

serve::HttpAnswer answer_to(const std::string& path, const PluginStatus& status) {
  if (path == "/metrics") return {"200 OK", metrics_text(status)};
  if (path == "/healthz") return {"200 OK", "ok\n"};
  if (path != "/readyz") return {"404 Not Found", "only /metrics, /healthz and /readyz\n"};
  if (status.not_ready.empty()) return {"200 OK", "ok\n"};
  return {"503 Service Unavailable", status.not_ready + "\n"};
}

}  // namespace vrdma::cli::kubernetes
