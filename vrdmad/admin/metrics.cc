#include "vrdmad/admin/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <utility>

#include "core/base/printable.h"

namespace vrdma::vrdmad {

namespace {

constexpr const char* kForThisHost = "metrics are for this host";

// The help text of each family. The names of the other "cm_" families are those of the CM's
// messages and reasons.
const std::map<std::string, std::string>& helps() {
  static const std::map<std::string, std::string> texts{
      {"vdevices", "number of vdevices"},
      {"vdevices_lost", "vdevices that could not be restored yet"},
      {"store_commits", "transactions committed to disk"},
      {"vdevice_info", "1 for each vdevice: what it is, and of which container"},
      {"sessions", "processes that have the vdevice open"},
      {"sessions_opened", "sessions ever opened"},
      {"sessions_malformed", "sessions ended for a violation of the protocol"},
      {"sessions_unproven",
       "attempts to open the vdevice by processes that did not prove their identity"},
      {"connections_foreign", "connections refused because they came from another namespace"},
      {"requests", "requests of sessions"},
      {"addresses_ignored", "addresses of the netdev that became no GID"},
      {"requests_refused", "requests of sessions answered with an error"},
      {"holds", "requests to hold a program's other threads"},
      {"mr_reached", "memory regions registered that are reached instead of in place"},
      {"work_requests", "work requests executed; direct ones as programs count them"},
      {"work_bytes", "bytes that work requests moved; direct ones as programs count them"},
      {"paced_bytes", "bytes that a limited vdevice paid for"},
      {"paced_messages", "work requests that a limited vdevice paid for"},
      {"cpu_microseconds", "processor time that the daemon used for the vdevice"},
      {"work_failed", "work requests that a worker completed with an error"},
      {"qps", "queue pairs by state"},
      {"links", "queue pairs that can send, by the mode of their link"},
      {"fabric_datagrams_dropped", "datagrams dropped in the vdevice's fabric"},
      {"fabric_rings_corrupt", "impossible ring indices in the vdevice's fabric"},
      {"fabric_requests_in_doubt",
       "requests that failed because a vrdmad ended while executing them"},
      {"quota_used", "use of a quota"},
      {"quota_limit", "the limit of a quota"},
      {"quota_refused", "refusals and delays because of a quota"},
      {"gids_refused", "addresses refused because another vdevice of the fabric has them"},
      {"worker_longest_pass",
       "longest time in microseconds between two polls of a worker's sockets"},
      {"admin_clients", "connections to the admin socket"},
      {"admin_clients_refused", "refused connections to the admin socket"},
      {"admin_grpc_starts", "starts of the admin API's gRPC server"},
  };
  return texts;
}

bool is_tenant(const CounterRow& row) { return row.scope.rfind("tenant/", 0) == 0; }

// vrdma_work_bytes_total, vrdma_tenant_work_bytes_total, vrdma_daemon_gids_refused_total
std::string family_of(const CounterRow& row) {
  std::string name = "vrdma_";
  if (is_tenant(row)) name += "tenant_";
  if (row.scope == "daemon" && row.name.rfind("vdevices", 0) != 0) name += "daemon_";
  return name + row.name + (row.gauge ? "" : "_total");
}

}  // namespace

std::string metrics_text(const std::vector<CounterRow>& rows) {
  std::map<std::string, prometheus::MetricFamily> families;
  for (const auto& row : rows) {
    const std::string name = family_of(row);
    auto& family = families[name];
    if (family.name.empty()) {
      const auto help = helps().find(row.name);
      family.name = name;
      family.help = help != helps().end() ? help->second : "see vrdmactl conn stats";
      if (is_tenant(row)) family.help += ", summed over the tenant's present and past vdevices";
      family.type = row.gauge ? prometheus::MetricType::Gauge : prometheus::MetricType::Counter;
    }
    prometheus::ClientMetric metric;
    if (is_tenant(row)) {
      metric.label.push_back({"tenant", row.tenant});
    } else if (row.scope != "daemon") {
      metric.label.push_back({"vdevice", row.scope});
      metric.label.push_back({"netns", base::printable(row.netns)});
      metric.label.push_back({"id", std::to_string(row.vdev_id)});
      metric.label.push_back({"tenant", row.tenant});
    }
    for (const auto& [key, value] : row.facts)
      metric.label.push_back({key, base::printable(value)});
    if (!row.label.first.empty()) metric.label.push_back({row.label.first, row.label.second});
    (row.gauge ? metric.gauge.value : metric.counter.value) = static_cast<double>(row.value);
    family.metric.push_back(std::move(metric));
  }
  std::vector<prometheus::MetricFamily> sorted;
  for (auto& [name, family] : families) sorted.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(sorted);
}

base::Result<void> check_metrics_address(const std::string& address) {
  if (address.empty()) return {};
  auto valid = serve::HttpServer::check(address, serve::HttpServer::Reach::kHost);
  return valid ? std::move(valid) : base::pass(std::move(valid).error(), kForThisHost);
}

base::Result<std::unique_ptr<serve::HttpServer>> serve_metrics(base::EventLoop& loop,
                                                               const std::string& address,
                                                               MetricsSource source) {
  auto server = serve::HttpServer::start(
      loop, address, serve::HttpServer::Reach::kHost,
      [source = std::move(source)](const std::string& path,
                                   const serve::HttpServer::Answer& answer) {
        if (path != "/metrics") return answer({"404 Not Found", "only /metrics\n"});
        source([answer](const std::vector<CounterRow>& rows) {
          answer({"200 OK", metrics_text(rows)});
        });
      });
  if (!server) return base::pass(std::move(server).error(), kForThisHost);
  return server;
}

}  // namespace vrdma::vrdmad
