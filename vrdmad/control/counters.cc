#include "vrdmad/control/counters.h"

#include <array>
#include <tuple>

#include "vrdmad/cm/rows.h"

namespace vrdma::vrdmad {

namespace {

constexpr std::array kStates{"reset", "init", "rtr", "rts", "sqd", "sqe", "err"};

// Names of the verbs::WcStatus (= ibv_wc_status) that a worker may report.
constexpr std::array<const char*, 14> kStatuses{"success",
                                                "local_length",
                                                "local_qp_operation",
                                                nullptr,
                                                "local_protection",
                                                "flushed",
                                                "window_bind",
                                                nullptr,
                                                nullptr,
                                                "remote_invalid_request",
                                                "remote_access",
                                                "remote_operation",
                                                "retry_exceeded",
                                                "rnr_retry_exceeded"};

// ipc::Reached.
constexpr std::array<const char*, static_cast<size_t>(ipc::kLastReached) + 1> kReasons{
    nullptr,    "memory",  "on_demand", "traced",  "busy_call", "vfork",
    "io_uring", "stopped", "deadline",  "refused", "lost",      "other",
    "asked",    "unseen",  "pinned",    "late",    "mappings"};

}  // namespace

std::vector<std::pair<const char*, uint64_t>> network_events(
    const transport::roce::Counters& network) {
  const transport::net::Counters& protocol = network.protocol;
  return {{"out_of_sequence", protocol.out_of_sequence},
          {"packet_seq_err", protocol.packet_seq_err},
          {"implied_nak_seq_err", protocol.implied_nak_seq_err},
          {"local_ack_timeout_err", protocol.local_ack_timeout_err},
          {"rnr_nak_retry_err", protocol.rnr_nak_retry_err},
          {"duplicate_request", protocol.duplicate_request},
          {"out_of_buffer", protocol.out_of_buffer},
          {"resp_remote_access_errors", protocol.resp_remote_access_errors},
          {"resp_invalid_request", protocol.resp_invalid_request},
          {"rx_write_requests", protocol.rx_write_requests},
          {"rx_read_requests", protocol.rx_read_requests},
          {"rx_atomic_requests", protocol.rx_atomic_requests},
          {"rx_icrc_encapsulated", network.endpoint.incoming.icrc_error},
          {"rx_malformed", network.endpoint.incoming.malformed},
          {"rx_unknown_qp", network.unknown_qp},
          {"rx_wrong_source", network.wrong_source},
          {"rx_no_peer", network.no_peer},
          {"rx_bad_pkey", protocol.bad_pkey},
          {"rx_bad_qkey", protocol.bad_qkey},
          {"rx_bad_service", protocol.bad_service},
          {"rx_bad_state", protocol.bad_state},
          {"rx_no_memory", protocol.dropped_no_memory},
          {"np_ecn_marked_roce_packets", protocol.np_ecn_marked_roce_packets},
          {"np_cnp_sent", protocol.np_cnp_sent},
          {"rp_cnp_handled", protocol.rp_cnp_handled},
          {"retransmitted", protocol.retransmitted},
          {"probes", protocol.probes},
          {"tx_errors", network.endpoint.send_errors}};
}

std::vector<CounterRow> vdevice_rows(const CounterScope& scope, const VdeviceUse& use,
                                     const VdeviceAbilities& may,
                                     const std::vector<provisioning::Row>& quota, uint64_t foreign,
                                     const qp1mux::Counters& cm) {
  std::vector<CounterRow> rows;
  const auto add = [&](const char* name, uint64_t value,
                       std::pair<std::string, std::string> label = {}) {
    rows.push_back({scope.vdevice.name, name, value, std::move(label), false});
  };
  const auto gauge = [&](const char* name, uint64_t value,
                         std::pair<std::string, std::string> label = {}) {
    rows.push_back({scope.vdevice.name, name, value, std::move(label), true});
  };
  // Whether the rows from `begin` on can change.
  const auto only_if = [&](bool able, size_t begin) {
    for (; begin < rows.size(); ++begin) rows[begin].fixed = !able;
  };
  gauge("sessions", use.device.contexts);
  add("sessions_opened", use.counters.opened);
  add("sessions_malformed", use.counters.malformed);
  add("sessions_unproven", use.counters.unproven);
  add("connections_foreign", foreign);
  add("requests", use.counters.requests);
  add("requests_refused", use.counters.refused);
  add("holds", use.counters.holds);
  for (size_t i = 1; i < kReasons.size(); ++i)
    add("mr_reached", use.counters.reached[i], {"reason", kReasons[i]});

  const auto& traffic = use.device.traffic;
  for (const auto& [transport, able, moved] : {std::tuple{"direct", may.direct, traffic.direct},
                                               {"connected", true, traffic.connected},
                                               {"datagram", true, traffic.datagram},
                                               {"packet", may.packets, traffic.packet}}) {
    add("work_requests", moved.requests, {"transport", transport});
    add("work_bytes", moved.bytes, {"transport", transport});
    only_if(able, rows.size() - 2);
  }
  add("paced_bytes", use.paced_bytes);
  add("paced_messages", use.paced_messages);
  only_if(may.paced, rows.size() - 2);
  add("reach_turns", use.reach_turns);
  add("cpu_microseconds", static_cast<uint64_t>(use.cpu.count()) / 1000);
  for (size_t i = 1; i < kStatuses.size(); ++i)
    if (kStatuses[i] != nullptr)
      add("work_failed", use.device.traffic.failed[i], {"status", kStatuses[i]});
  for (size_t i = 0; i < kStates.size(); ++i)
    gauge("qps", use.device.qps[i], {"state", kStates[i]});
  gauge("links", use.device.links_direct, {"mode", "direct"});
  only_if(may.direct, rows.size() - 1);
  gauge("links", use.device.links_mediated, {"mode", "mediated"});

  const size_t of_network = rows.size();
  add("network_packets", use.network.endpoint.sent_packets, {"direction", "sent"});
  add("network_packets", use.network.endpoint.received_packets, {"direction", "received"});
  for (const auto& [event, count] : network_events(use.network))
    add("network_events", count, {"event", event});
  only_if(may.network, of_network);
  add("fabric_datagrams_dropped", use.fabric.datagrams_dropped);
  add("fabric_rings_corrupt", use.fabric.rings_corrupt);
  add("fabric_requests_in_doubt", use.fabric.requests_in_doubt);
  for (const auto& row : quota) {
    const provisioning::KindTraits& its = provisioning::traits(row.kind);
    const std::string kind(its.name);
    // bandwidth_min is a promise, and 0 is none.
    const bool limited =
        row.kind == provisioning::Kind::kBandwidthMin ? row.limit > 0 : row.limit < its.ceiling;
    gauge("quota_used", row.used, {"kind", kind});
    gauge("quota_limit", row.limit, {"kind", kind});
    add("quota_refused", row.refused, {"kind", kind});
    only_if(limited, rows.size() - 3);
  }
  const size_t cm_ids = static_cast<size_t>(provisioning::Kind::kCmIds);
  const bool has_ids = cm_ids < quota.size() && quota[cm_ids].used > 0;
  for (auto& row : cm_counter_rows(scope.vdevice.name, cm, has_ids)) rows.push_back(std::move(row));
  for (auto& row : rows) {
    row.tenant = scope.tenant;
    row.vdev_id = scope.vdevice.id;
    row.netns = scope.vdevice.netns;
  }
  return rows;
}

ActivityRow activity_row(uint64_t vdev_id, const VdeviceUse& use,
                         const std::vector<provisioning::Row>& quota) {
  ActivityRow row;
  row.vdev_id = vdev_id;
  row.sessions = static_cast<uint32_t>(use.device.contexts);
  for (const auto& qps : use.device.qps) row.queue_pairs += static_cast<uint32_t>(qps);
  const auto& traffic = use.device.traffic;
  row.direct = {traffic.direct.requests, traffic.direct.bytes};
  for (const auto* moved : {&traffic.connected, &traffic.datagram, &traffic.packet}) {
    row.worker.requests += moved->requests;
    row.worker.bytes += moved->bytes;
  }
  if (const uint64_t refused = use.counters.refused; refused > 0)
    row.refused.emplace_back("request", refused);
  for (size_t i = 1; i < kStatuses.size(); ++i)
    if (kStatuses[i] != nullptr && traffic.failed[i] > 0)
      row.refused.emplace_back(std::string("work:") + kStatuses[i], traffic.failed[i]);
  for (const auto& its : quota) {
    const provisioning::KindTraits& traits = provisioning::traits(its.kind);
    if (its.refused > 0) row.refused.emplace_back("quota:" + std::string(traits.name), its.refused);
    if (its.used > 0 && its.limit != UINT64_MAX)
      row.usage.push_back({std::string(traits.name), its.used, its.limit});
  }
  return row;
}

std::vector<std::pair<std::string, uint64_t>> reached_by_reason(const VdeviceUse& use) {
  std::vector<std::pair<std::string, uint64_t>> reasons;
  for (size_t i = 1; i < kReasons.size(); ++i)
    if (const uint64_t count = use.counters.reached[i]; count > 0)
      reasons.emplace_back(kReasons[i], count);
  return reasons;
}

void TenantTotals::add(const CounterRow& row) {
  if (row.name == "quota_limit" || row.name.rfind("fabric_", 0) == 0) return;
  Sum& sum = sums_[row.tenant][{row.name, row.label}];
  sum.value += row.value;
  sum.gauge = row.gauge;
  sum.fixed = sum.fixed && row.fixed;
}

void TenantTotals::keep(const std::set<std::string>& tenants) {
  std::erase_if(sums_, [&](const auto& entry) { return !tenants.contains(entry.first); });
}

std::vector<CounterRow> TenantTotals::rows() const {
  std::vector<CounterRow> rows;
  for (const auto& [tenant, sums] : sums_)
    for (const auto& [key, sum] : sums)
      rows.push_back({"tenant/" + tenant,
                      key.first,
                      sum.value,
                      key.second,
                      sum.gauge,
                      tenant,
                      0,
                      {},
                      {},
                      sum.fixed});
  return rows;
}

}  // namespace vrdma::vrdmad
