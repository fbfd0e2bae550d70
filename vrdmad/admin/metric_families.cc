#include "vrdmad/admin/metric_families.h"

#include <string_view>
#include <unordered_map>

namespace vrdma::vrdmad {

namespace {
constexpr double kMicroseconds = 1e-6;
}

const std::vector<MetricFamily>& metric_families() {
  using enum MetricFamily::Of;
  static const std::vector<MetricFamily> all{
      {"vdevice_info", "vdevice_info", kVdeviceOnly, true, "",
       "1 for each vdevice: what it is, and of which pod and container"},
      {"sessions", "sessions", kVdevice, true, "", "Processes that have the vdevice open"},
      {"sessions_opened", "sessions_opened", kVdevice, false, "", "Sessions ever opened"},
      {"sessions_malformed", "sessions_malformed", kVdevice, false, "",
       "Sessions ended because they violated the protocol"},
      {"sessions_unproven", "sessions_unproven", kVdevice, false, "",
       "Attempts to open the vdevice by processes that did not prove their identity"},
      {"addresses_ignored", "addresses_ignored", kVdevice, false, "",
       "Addresses of the netdev that became no GID"},
      {"connections_foreign", "connections_foreign", kVdevice, false, "",
       "Connections refused because they came from another network namespace"},
      {"requests", "requests", kVdevice, false, "",
       "Requests of sessions, such as to create or to register"},
      {"requests_refused", "requests_refused", kVdevice, false, "",
       "Requests of sessions answered with an error"},
      {"holds", "holds", kVdevice, false, "",
       "Requests to hold a program's other threads while its memory is put in place"},
      {"mr_reached", "mr_reached", kVdevice, false, "reason",
       "Memory regions registered that are reached instead of in place, and so are slower"},
      {"work_requests", "work_requests", kVdevice, false, "transport",
       "Work requests executed; the direct ones as programs count them"},
      {"work_bytes", "work_bytes", kVdevice, false, "transport",
       "Bytes that work requests moved, READs included; the direct ones as programs count them"},
      {"paced_bytes", "paced_bytes", kVdevice, false, "",
       "Bytes of these that were charged to a rate-limited vdevice"},
      {"paced_messages", "paced_messages", kVdevice, false, "",
       "Work requests of these that were charged to a rate-limited vdevice"},
      {"reach_turns", "reach_turns", kVdevice, false, "",
       "Turns of the threads that reach memory which is not in place"},
      {"cpu_microseconds", "cpu_seconds", kVdevice, false, "",
       "Processor time that the daemon used for the vdevice", kMicroseconds},
      {"network_packets", "network_packets", kVdevice, false, "direction",
       "Packets of RoCE v2 to and from other hosts"},
      {"network_events", "network_events", kVdevice, false, "event",
       "What happened to packets of RoCE v2, by the names of the kernel drivers' hw_counters"},
      {"work_failed", "work_failed", kVdevice, false, "status",
       "Work requests that a worker completed with an error"},
      {"qps", "qps", kVdevice, true, "state", "Queue pairs by state"},
      {"links", "links", kVdevice, true, "mode",
       "Queue pairs that can send, by the mode of their link"},
      {"quota_used", "quota_used", kVdevice, true, "kind",
       "What the vdevice uses of a quota, in the quota's unit"},
      {"quota_limit", "quota_limit", kVdeviceOnly, true, "kind",
       "The limit of a quota, in the quota's unit"},
      {"quota_refused", "quota_refused", kVdevice, false, "kind",
       "Refusals because of a quota; of rates: delays"},
      {"fabric_datagrams_dropped", "fabric_datagrams_dropped", kVdeviceOnly, false, "",
       "Datagrams dropped in the vdevice's fabric"},
      {"fabric_rings_corrupt", "fabric_rings_corrupt", kVdeviceOnly, false, "",
       "Impossible ring indices in the vdevice's fabric"},
      {"fabric_requests_in_doubt", "fabric_requests_in_doubt", kVdeviceOnly, false, "",
       "Requests in the vdevice's fabric that failed because a worker ended while it executed "
       "them"},
      {"cm_sent", "cm_sent", kVdevice, false, "message",
       "Messages of rdma_cm sent, repetitions included"},
      {"cm_repeated", "cm_repeated", kVdevice, false, "message",
       "Messages of rdma_cm sent again, because no answer came or to answer a duplicate"},
      {"cm_received", "cm_received", kVdevice, false, "message",
       "Messages of rdma_cm received, duplicates included"},
      {"cm_duplicate", "cm_duplicate", kVdevice, false, "message",
       "Messages of rdma_cm received that were known already"},
      {"cm_rejects_sent", "cm_rejects_sent", kVdevice, false, "reason", "Refusals of rdma_cm sent"},
      {"cm_rejects_received", "cm_rejects_received", kVdevice, false, "reason",
       "Refusals of rdma_cm received"},
      {"cm_forged", "cm_forged", kVdevice, false, "",
       "Messages of rdma_cm not sent because they named what the vdevice does not own"},
      {"cm_limited_sent", "cm_limited_sent", kVdevice, false, "",
       "Messages of rdma_cm not sent because of a limit"},
      {"cm_limited_received", "cm_limited_received", kVdevice, false, "",
       "Messages of rdma_cm dropped on arrival because of a limit or a full backlog"},
      {"cm_strays", "cm_strays", kVdevice, false, "",
       "Messages of rdma_cm that belonged to no connection or did not come from its peer"},
      {"cm_qp1_lost", "cm_qp1_lost", kVdevice, false, "",
       "Messages from or to a program's queue pair 1 that were dropped for lack of buffers"},
      {"vdevices", "vdevices", kDaemon, true, "", "Vdevices that exist"},
      {"vdevices_lost", "vdevices_lost", kDaemon, true, "",
       "Vdevices that the daemon could not restore yet"},
      {"store_commits", "daemon_store_commits", kDaemon, false, "", "Transactions written to disk"},
      {"gids_refused", "daemon_gids_refused", kDaemon, false, "",
       "Addresses refused as GIDs because another vdevice has them"},
      {"cm_sessions_opened", "daemon_cm_sessions_opened", kDaemon, false, "",
       "Sessions of rdma_cm ever opened"},
      {"cm_sessions_malformed", "daemon_cm_sessions_malformed", kDaemon, false, "",
       "Sessions of rdma_cm ended because they violated the protocol"},
      {"cm_sessions_unproven", "daemon_cm_sessions_unproven", kDaemon, false, "",
       "Sessions of rdma_cm refused because of the identity of the process that used them"},
      {"cm_sessions_unread", "daemon_cm_sessions_unread", kDaemon, false, "",
       "Sessions of rdma_cm ended because the program did not read its events"},
      {"cm_namespaces_crowded", "daemon_cm_namespaces_crowded", kDaemon, false, "",
       "Connections and requests refused because a namespace, or a user in it, reached its limit"},
      {"cm_sessions_delayed", "daemon_cm_sessions_delayed", kDaemon, false, "",
       "Times that the daemon paused reading a session of rdma_cm because its user exceeded "
       "req_rate"},
      {"qp1_sent", "daemon_qp1_sent", kDaemon, false, "", "MADs of rdma_cm sent to other hosts"},
      {"qp1_received", "daemon_qp1_received", kDaemon, false, "",
       "MADs of rdma_cm received from other hosts"},
      {"qp1_lost", "daemon_qp1_lost", kDaemon, false, "",
       "MADs that could not be sent to other hosts"},
      {"qp1_icrc_errors", "daemon_qp1_icrc_errors", kDaemon, false, "",
       "Packets to queue pair 1 with a wrong ICRC"},
      {"qp1_malformed", "daemon_qp1_malformed", kDaemon, false, "",
       "Packets to queue pair 1 that are no MAD"},
      {"qp1_no_peer", "daemon_qp1_no_peer", kDaemon, false, "",
       "MADs from addresses that are no peers of the fabric, or to them"},
      {"qp1_over_rate", "daemon_qp1_over_rate", kDaemon, false, "",
       "MADs dropped because their host sent too many in a second"},
      {"qp1_translated", "daemon_qp1_translated", kDaemon, false, "",
       "Connection requests refused because their addresses were translated on the way"},
      {"qp1_delayed", "daemon_qp1_delayed", kDaemon, false, "",
       "Times that the daemon paused reading an address because of what came to queue pair 1"},
      {"worker_longest_pass", "daemon_worker_longest_pass_seconds", kDaemon, true, "worker",
       "Longest time between two checks of a worker's sockets since the daemon started",
       kMicroseconds},
      {"admin_clients", "daemon_admin_clients", kDaemon, false, "",
       "Connections to the admin socket"},
      {"admin_clients_refused", "daemon_admin_clients_refused", kDaemon, false, "",
       "Connections to the admin socket refused because the user is not permitted"},
      {"admin_grpc_starts", "daemon_admin_grpc_starts", kDaemon, false, "",
       "Times that the admin API started"},
      {"metrics_refused", "daemon_metrics_refused", kDaemon, false, "reason",
       "Connections to the metrics endpoint that got no metrics"},
  };
  return all;
}

const MetricFamily* family_of(const CounterRow& row) {
  static const auto by_row = [] {
    std::unordered_map<std::string_view, const MetricFamily*> all;
    for (const auto& family : metric_families()) all.emplace(family.row, &family);
    return all;
  }();
  const auto found = by_row.find(row.name);
  return found != by_row.end() ? found->second : nullptr;
}

std::string metric_name(const MetricFamily& family, bool of_tenant) {
  return std::string(of_tenant ? "vrdma_tenant_" : "vrdma_") + family.name +
         (family.gauge ? "" : "_total");
}

}  // namespace vrdma::vrdmad
