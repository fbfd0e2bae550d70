#include "vrdmad/cm/rows.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/wire/rdma_cm.h"

namespace vrdma::vrdmad {

namespace {

constexpr std::array<const char*, wire::kCmAttributes> kMessages{
    "req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep", "lap", "apr"};

constexpr size_t kRareMessages = 9;  // from lap on: to load another path, which rdma_cm never does

constexpr std::array<const char*, qp1mux::Counters::kReasons> kReasons{
    "unknown",
    "no_qp",
    "no_eec",
    "no_resources",
    "timeout",
    "unsupported",
    "invalid_comm_id",
    "invalid_comm_instance",
    "invalid_service_id",
    "invalid_transport",
    "stale_connection",
    "no_rdc",
    "invalid_gid",
    "invalid_lid",
    "invalid_sl",
    "invalid_traffic_class",
    "invalid_hop_limit",
    "invalid_packet_rate",
    "invalid_alternate_gid",
    "invalid_alternate_lid",
    "invalid_alternate_sl",
    "invalid_alternate_traffic_class",
    "invalid_alternate_hop_limit",
    "invalid_alternate_packet_rate",
    "port_and_cm_redirect",
    "port_redirect",
    "invalid_mtu",
    "insufficient_responder_resources",
    "consumer",
    "rnr_count",
    "duplicate_comm_id",
    "invalid_class_version",
    "invalid_flow_label",
    "invalid_alternate_flow_label",
    "reason_34",
    "vendor_option"};

// What qp1mux sends itself.
bool is_own(wire::RejectReason reason) {
  using wire::RejectReason;
  switch (reason) {
    case RejectReason::kNoResources:
    case RejectReason::kTimeout:
    case RejectReason::kInvalidCommId:
    case RejectReason::kInvalidServiceId:
    case RejectReason::kInvalidTransport:
    case RejectReason::kStaleConnection:
    case RejectReason::kInvalidGid:
    case RejectReason::kInvalidMtu:
    case RejectReason::kConsumer:
      return true;
    default:
      return false;
  }
}

std::string service_of(uint64_t service_id) {
  const auto space = wire::port_space(service_id);
  if (!space) return "";
  switch (*space) {
    case wire::PortSpace::kTcp:
      return "tcp";
    case wire::PortSpace::kUdp:
      return "udp";
    case wire::PortSpace::kIb:
      return "ib";
    case wire::PortSpace::kIpoib:
      return "ipoib";
  }
  return "";
}

const char* transport_of(const qp1mux::ConnectionInfo& info) {
  if (info.datagram) return "UD";
  switch (info.transport) {
    case wire::CmTransport::kUc:
      return "UC";
    case wire::CmTransport::kExtended:
      return "XRC";
    default:
      return "RC";
  }
}

ConnectionRow row_of(const qp1mux::ConnectionInfo& info) {
  ConnectionRow row;
  row.vdev = {info.vdevice_id, info.vdevice, ""};
  row.tenant = info.tenant;
  row.fabric = info.fabric;
  row.transport = transport_of(info);
  row.state = qp1mux::state_text(info.state);
  row.active = info.active;
  row.service = service_of(info.service_id);
  row.service_id = info.service_id;
  row.local = info.local.text();
  row.remote = info.remote.text();
  const uint16_t port = row.service.empty() ? uint16_t{0} : wire::port(info.service_id);
  (info.active ? row.remote_port : row.local_port) = port;
  (info.active ? row.local_port : row.remote_port) = info.source_port;
  row.local_qpn = info.local_qpn;
  row.remote_qpn = info.remote_qpn;
  row.local_id = info.local_id;
  row.remote_id = info.remote_id;
  row.age_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(info.age).count());
  return row;
}

ConnectionRow row_of(const qp1mux::ListenerInfo& info) {
  ConnectionRow row;
  row.vdev = {info.vdevice_id, info.vdevice, ""};
  row.tenant = info.tenant;
  row.fabric = info.fabric;
  row.state = "LISTEN";
  row.service = service_of(info.service_id);
  row.service_id = info.service_id;
  if (info.gid) row.local = info.gid->text();
  if (!row.service.empty()) row.local_port = wire::port(info.service_id);
  row.waiting = info.waiting;
  row.backlog = info.backlog;
  return row;
}

}  // namespace

std::vector<ConnectionRow> connection_rows(const qp1mux::Mux& mux, uint64_t vdev_id) {
  std::vector<ConnectionRow> rows;
  const auto add = [&](const auto& infos) {
    for (const auto& info : infos)
      if (vdev_id == 0 || info.vdevice_id == vdev_id) rows.push_back(row_of(info));
  };
  add(mux.listeners());
  add(mux.connections());
  std::sort(rows.begin(), rows.end(), [](const ConnectionRow& a, const ConnectionRow& b) {
    const bool is_a = a.state != "LISTEN", is_b = b.state != "LISTEN";
    return std::tie(a.vdev.name, a.vdev.id, is_a, b.age_ms, a.local_port, a.local_id) <
           std::tie(b.vdev.name, b.vdev.id, is_b, a.age_ms, b.local_port, b.local_id);
  });
  return rows;
}

std::vector<CounterRow> cm_counter_rows(const std::string& scope, const qp1mux::Counters& counters,
                                        bool has_ids) {
  std::vector<CounterRow> rows;
  const auto is_zero = [](const auto& values) {
    return std::ranges::all_of(values, [](uint64_t value) { return value == 0; });
  };
  const bool used = has_ids || !is_zero(counters.sent) || !is_zero(counters.received);
  const auto add = [&](const char* name, uint64_t value, const char* key, const char* label,
                       bool usual) {
    if (value != 0 || (used && usual)) rows.push_back({scope, name, value, {key, label}});
  };
  for (const auto& [name, values] : {std::pair{"cm_sent", &counters.sent},
                                     {"cm_repeated", &counters.repeated},
                                     {"cm_received", &counters.received},
                                     {"cm_duplicate", &counters.duplicates}})
    for (size_t i = 0; i < values->size(); ++i)
      add(name, (*values)[i], "message", kMessages[i], i < kRareMessages);
  for (const auto& [name, values] : {std::pair{"cm_rejects_sent", &counters.rejects_sent},
                                     {"cm_rejects_received", &counters.rejects_received}})
    for (size_t i = 0; i < values->size(); ++i)
      add(name, (*values)[i], "reason", kReasons[i], is_own(static_cast<wire::RejectReason>(i)));
  rows.push_back({scope, "cm_forged", counters.refused});
  rows.push_back({scope, "cm_limited_sent", counters.limited});
  rows.push_back({scope, "cm_limited_received", counters.overloaded});
  rows.push_back({scope, "cm_strays", counters.strays});
  return rows;
}

}  // namespace vrdma::vrdmad
