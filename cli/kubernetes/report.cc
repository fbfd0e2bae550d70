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

constexpr auto kGauge = prometheus::MetricType::Gauge;
constexpr auto kCounter = prometheus::MetricType::Counter;
constexpr char kUnhealthy[] = "vrdma_plugin_unhealthy";
constexpr char kUnhealthyHelp[] = "1 for the reason why devices are unhealthy";
constexpr char kRegistrations[] = "vrdma_plugin_registrations_total";
constexpr char kRegistrationsHelp[] = "registrations with the kubelet";

std::string serialized(std::initializer_list<const Family*> families) {
  std::vector<prometheus::MetricFamily> all;
  for (const auto* family : families)
    if (!family->get().metric.empty()) all.push_back(family->get());
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace

std::string metrics_text(const PluginStatus& status) {
  Family devices("vrdma_plugin_devices", "devices advertised to the kubelet", kGauge);
  Family allocations("vrdma_plugin_allocations_total", "containers that got a device", kCounter);
  Family refusals("vrdma_plugin_refusals_total", "refused allocations", kCounter);
  Family registrations(kRegistrations, kRegistrationsHelp, kCounter);
  Family restarts("vrdma_plugin_kubelet_restarts_total", "times that kubelet.sock was replaced",
                  kCounter);
  Family age("vrdma_plugin_stream_age_seconds",
             "time for which the kubelet has read the devices; 0: it does not", kGauge);
  Family unhealthy(kUnhealthy, kUnhealthyHelp, kGauge);
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
  return serialized(
      {&allocations, &devices, &restarts, &refusals, &registrations, &age, &unhealthy});
}

std::string metrics_text(const DriverStatus& status) {
  const auto count = [](uint64_t number) { return static_cast<double>(number); };
  const auto of = [](const char* text) { return Labels{{"result", text}}; };
  const auto& claims = *status.claims;
  Family prepares("vrdma_plugin_claim_prepares_total", "claims that the kubelet prepared",
                  kCounter);
  Family unprepares("vrdma_plugin_claim_unprepares_total", "claims that the kubelet unprepared",
                    kCounter);
  Family undone("vrdma_plugin_claims_undone_total", "claims that were gone from the API server",
                kCounter);
  Family files("vrdma_plugin_claim_files_rewritten_total", "CDI files that were missing", kCounter);
  Family generation("vrdma_plugin_slices_generation", "of the node's pool", kGauge);
  Family writes("vrdma_plugin_slice_writes_total", "writes of ResourceSlices", kCounter);
  Family failures("vrdma_plugin_slice_failures_total", "failures to look after ResourceSlices",
                  kCounter);
  Family registrations(kRegistrations, kRegistrationsHelp, kCounter);
  Family unhealthy(kUnhealthy, kUnhealthyHelp, kGauge);
  prepares.add(of("prepared"), count(claims.prepared));
  prepares.add(of("refused"), count(claims.refused));
  unprepares.add(of("unprepared"), count(claims.unprepared));
  unprepares.add(of("failed"), count(claims.held));
  undone.add({}, count(claims.undone));
  files.add({}, count(claims.rewritten));
  generation.add({}, count(status.slices.generation));
  writes.add({}, count(status.slices.writes));
  failures.add({}, count(status.slices.failures));
  registrations.add(of("accepted"), count(status.registered));
  registrations.add(of("failed"), count(status.refused));
  for (const auto& [name, why] : status.unhealthy)
    unhealthy.add({{"class", name}, {"reason", why.reason}}, 1);
  return serialized({&prepares, &unprepares, &undone, &files, &generation, &writes, &failures,
                     &registrations, &unhealthy});
}

serve::HttpAnswer answer_to(const std::string& path, const std::string& metrics,
                            const std::string& not_ready) {
  if (path == "/metrics") return {"200 OK", metrics};
  if (path == "/healthz") return {"200 OK", "ok\n"};
  if (path != "/readyz") return {"404 Not Found", "only /metrics, /healthz and /readyz\n"};
  if (not_ready.empty()) return {"200 OK", "ok\n"};
  return {"503 Service Unavailable", not_ready + "\n"};
}

}  // namespace vrdma::cli::kubernetes
