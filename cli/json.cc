#include "cli/json.h"

#include <nlohmann/json.hpp>

#include "cli/top_rows.h"
#include "cli/who.h"

namespace vrdma::cli {

namespace {

using Json = nlohmann::ordered_json;  // fields in the order of the proto

Json quota_rows(const v1::Vdev& vdev) {
  Json rows = Json::array();
  for (const auto& row : vdev.quota())
    rows.push_back({{"kind", row.kind()}, {"used", row.used()}, {"limit", row.limit()}});
  return rows;
}

Json gid_rows(const v1::Vdev& vdev) {
  Json rows = Json::array();
  for (const auto& row : vdev.gids())
    rows.push_back({{"index", row.index()}, {"gid", row.gid()}, {"type", row.type()}});
  return rows;
}

Json reached_rows(const v1::Vdev& vdev) {
  Json rows = Json::array();
  for (const auto& row : vdev.reached())
    rows.push_back({{"reason", row.reason()}, {"regions", row.regions()}});
  return rows;
}

Json owner_of(const v1::Vdev& vdev) {
  if (!vdev.has_owner()) return {};
  const auto& owner = vdev.owner();
  return {{"pid", owner.pid()},
          {"start_time", owner.start_time()},
          {"boot_id", owner.boot_id()},
          {"ended", owner.ended()}};
}

Json container_rows(const v1::Vdev& vdev) {
  Json rows = Json::array();
  for (const auto& row : vdev.containers()) rows.push_back({{"id", row.id()}, {"pid", row.pid()}});
  return rows;
}

Json labels_of(const google::protobuf::Map<std::string, std::string>& labels) {
  Json object = Json::object();
  for (const auto& [key, value] : sorted_labels(labels)) object[key] = value;
  return object;
}

template <class Settings>
Json limits_of(const Settings& settings) {
  Json limits = Json::object();
  for (const auto& row : settings) limits[row.kind()] = row.limit();
  return limits;
}

Json object_of(const v1::Vdev& vdev) {
  return {{"name", vdev.name()},
          {"parent", vdev.parent()},
          {"tenant", vdev.tenant()},
          {"fabric", vdev.fabric()},
          {"netns", vdev.netns()},
          {"netns_cookie", vdev.netns_cookie()},
          {"netdev", vdev.netdev()},
          {"ifindex", vdev.ifindex()},
          {"node_guid", vdev.node_guid()},
          {"port_state", vdev.port_state()},
          {"active_mtu", vdev.active_mtu()},
          {"socket", vdev.socket()},
          {"sessions", vdev.sessions()},
          {"parked", vdev.parked()},
          {"gids", gid_rows(vdev)},
          {"quota", quota_rows(vdev)},
          {"allowed", vdev.allowed()},
          {"limited", vdev.limited()},
          {"no_direct", vdev.no_direct()},
          {"addresses", vdev.addresses()},
          {"addresses_ignored", vdev.addresses_ignored()},
          {"reached", reached_rows(vdev)},
          {"id", vdev.id()},
          {"owner", owner_of(vdev)},
          {"end_with_owner", vdev.end_with_owner()},
          {"containers", container_rows(vdev)},
          {"labels", labels_of(vdev.labels())},
          {"lost", vdev.lost()},
          {"unserved", vdev.unserved()},
          {"gid_layout", vdev.gid_layout()},
          {"reach", vdev.reach()},
          {"peers", vdev.peers()},
          {"addresses_given", vdev.addresses_given()}};
}

Json export_rows(const v1::Vdev& vdev, const std::vector<v1::Export>& exports) {
  Json rows = Json::array();
  for (const auto& one : exports)
    if (one.vdev_id() == vdev.id())
      rows.push_back(
          {{"pid", one.pid()},
           {"socket", one.socket()},
           {"vmm_connected", one.vmm_connected()},
           {"driver_version", one.has_driver_version() ? Json(one.driver_version()) : Json()},
           {"doorbell_mode", one.doorbell_mode()},
           {"doorbells", one.doorbells()},
           {"registers", one.registers()},
           {"commands", one.commands()},
           {"interrupts", one.interrupts()},
           {"replaced", one.replaced()},
           {"attaches_refused", one.attaches_refused()},
           {"commands_refused", one.commands_refused()},
           {"doorbells_refused", one.doorbells_refused()},
           {"requests_refused", one.requests_refused()},
           {"events_lost", one.events_lost()}});
  return rows;
}

// Invalid UTF-8, for example in a netns path, becomes U+FFFD instead of an exception.
std::string text_of(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <class Rows, class ToJson>
std::string array_of(const Rows& rows, ToJson to_json) {
  Json array = Json::array();
  for (const auto& row : rows) array.push_back(to_json(row));
  return text_of(array);
}

}  // namespace

std::string json_of(const v1::Vdev& vdev) { return text_of(object_of(vdev)); }

std::string json_of(const std::vector<v1::Vdev>& vdevs) { return array_of(vdevs, object_of); }

std::string json_of(const std::vector<v1::Vdev>& vdevs,
                    const base::Result<std::vector<v1::Export>>& exports) {
  return array_of(vdevs, [&](const v1::Vdev& vdev) {
    Json all = object_of(vdev);
    all["exports"] = exports ? export_rows(vdev, *exports) : Json();
    return all;
  });
}

std::string json_of_quota(const std::vector<v1::Vdev>& vdevs) {
  return array_of(vdevs, [](const v1::Vdev& vdev) -> Json {
    return {{"vdev", vdev.name()},
            {"vdev_id", vdev.id()},
            {"netns", vdev.netns()},
            {"quota", quota_rows(vdev)}};
  });
}

std::string json_of_gids(const std::vector<v1::Vdev>& vdevs) {
  return array_of(vdevs, [](const v1::Vdev& vdev) -> Json {
    return {{"vdev", vdev.name()},
            {"vdev_id", vdev.id()},
            {"netns", vdev.netns()},
            {"gids", gid_rows(vdev)}};
  });
}

std::string json_of(const std::vector<v1::Parent>& parents) {
  return array_of(parents, [](const v1::Parent& parent) -> Json {
    return {{"name", parent.name()},
            {"kind", parent.kind()},
            {"vdevices", parent.vdevices()},
            {"detail", parent.detail()},
            {"state", parent.state()},
            {"numa_node", parent.has_numa_node() ? Json(parent.numa_node()) : Json()}};
  });
}

std::string json_of(const std::vector<v1::Class>& classes) {
  return array_of(classes, [](const v1::Class& its) -> Json {
    return {{"name", its.name()},
            {"error", its.error()},
            {"parent", its.parent()},
            {"parent_state", its.parent_state()},
            {"numa_node", its.has_numa_node() ? Json(its.numa_node()) : Json()},
            {"devices", its.devices()},
            {"given", its.given()},
            {"free", its.free() == UINT32_MAX ? Json() : Json(its.free())},
            {"quota", limits_of(its.quota())},
            {"max_quota", limits_of(its.max_quota())},
            {"reach", its.reach()}};
  });
}

std::string json_of(const std::vector<v1::Claim>& claims) {
  return array_of(claims, [](const v1::Claim& claim) -> Json {
    Json shares = Json::array();
    for (const auto& share : claim.shares())
      shares.push_back({{"id", share.id()},
                        {"class", share.class_()},
                        {"quota", limits_of(share.quota())},
                        {"vdevices", share.vdevices()}});
    return {{"uid", claim.uid()},
            {"namespace", claim.namespace_()},
            {"name", claim.name()},
            {"shares", shares},
            {"labels", labels_of(claim.labels())}};
  });
}

std::string json_of(const std::vector<v1::Budget>& budgets) {
  return array_of(budgets, [](const v1::Budget& budget) -> Json {
    Json rows = Json::array();
    for (const auto& row : budget.rows())
      rows.push_back({{"kind", row.kind()},
                      {"default", row.has_default_() ? Json(row.default_()) : Json()},
                      {"ceiling", row.has_ceiling() ? Json(row.ceiling()) : Json()},
                      {"given", row.given()},
                      {"used", row.used()}});
    return {{"name", budget.name()},
            {"overcommit", budget.overcommit()},
            {"vdevices", budget.vdevices()},
            {"rows", rows}};
  });
}

std::string json_of(const std::vector<v1::Fabric>& fabrics) {
  return array_of(fabrics, [](const v1::Fabric& fabric) -> Json {
    return {{"name", fabric.name()},
            {"reach", fabric.reach()},
            {"vdevices", fabric.vdevices()},
            {"gids", fabric.gids()},
            {"peers", fabric.peers()}};
  });
}

std::string json_of(const std::vector<v1::CgroupUse>& uses) {
  return array_of(uses, [](const v1::CgroupUse& use) -> Json {
    Json rows = Json::array();
    for (const auto& row : use.use()) rows.push_back({{"kind", row.kind()}, {"used", row.used()}});
    return {{"cgroup", use.cgroup()},
            {"vdev", use.vdev()},
            {"vdev_id", use.vdev_id()},
            {"netns", use.netns()},
            {"use", rows}};
  });
}

std::string json_of(const std::vector<v1::Counter>& counters) {
  return array_of(counters, [](const v1::Counter& counter) -> Json {
    return {{"scope", counter.scope()},   {"name", counter.name()},
            {"value", counter.value()},   {"gauge", counter.gauge()},
            {"tenant", counter.tenant()}, {"vdev_id", counter.vdev_id()},
            {"netns", counter.netns()}};
  });
}

std::string json_of(const std::vector<v1::Connection>& connections) {
  return array_of(connections, [](const v1::Connection& row) -> Json {
    return {{"vdev", row.vdev()},           {"tenant", row.tenant()},
            {"fabric", row.fabric()},       {"transport", row.transport()},
            {"state", row.state()},         {"active", row.active()},
            {"service", row.service()},     {"service_id", row.service_id()},
            {"local", row.local()},         {"local_port", row.local_port()},
            {"remote", row.remote()},       {"remote_port", row.remote_port()},
            {"local_qpn", row.local_qpn()}, {"remote_qpn", row.remote_qpn()},
            {"local_id", row.local_id()},   {"remote_id", row.remote_id()},
            {"age_ms", row.age_ms()},       {"waiting", row.waiting()},
            {"backlog", row.backlog()},     {"vdev_id", row.vdev_id()},
            {"netns", row.netns()}};
  });
}

std::string json_of(const std::vector<v1::QueuePair>& queue_pairs) {
  return array_of(queue_pairs, [](const v1::QueuePair& row) -> Json {
    return {{"vdev", row.vdev()},
            {"vdev_id", row.vdev_id()},
            {"netns", row.netns()},
            {"qpn", row.qpn()},
            {"pid", row.pid()},
            {"type", row.type()},
            {"state", row.state()},
            {"transport", row.transport()},
            {"because", row.because()},
            {"local", row.local()},
            {"remote", row.remote()},
            {"remote_qpn", row.remote_qpn()},
            {"round_trip_us", row.round_trip_us()},
            {"window", row.window()},
            {"unanswered", row.unanswered()},
            {"rate", row.rate()},
            {"packet_seq_err", row.packet_seq_err()},
            {"implied_nak_seq_err", row.implied_nak_seq_err()},
            {"local_ack_timeout_err", row.local_ack_timeout_err()},
            {"rnr_nak_retry_err", row.rnr_nak_retry_err()},
            {"retransmitted", row.retransmitted()},
            {"direct_requests", row.direct_requests()},
            {"direct_bytes", row.direct_bytes()},
            {"worker_requests", row.worker_requests()},
            {"worker_bytes", row.worker_bytes()}};
  });
}

std::string json_of(const v1::WatchEvent& event) {
  return text_of({{"type", event_name(event.type())},
                  {"reason", event.reason()},
                  {"vdev", object_of(event.vdev())}},
                 -1);
}

std::string json_of(const std::vector<TopRow>& rows, double seconds) {
  Json vdevs = Json::array();
  for (const auto& row : rows) {
    Json refused_by = Json::object();
    for (const auto& [reason, rate] : row.refused_by) refused_by[reason] = rate;
    vdevs.push_back(
        {{"name", row.name},
         {"vdev_id", row.id},
         {"netns", row.netns},
         {"who", row.who},
         {"tenant", row.tenant},
         {"sessions", row.sessions},
         {"qps", row.qps},
         {"direct", {{"requests_per_s", row.direct.requests}, {"bytes_per_s", row.direct.bytes}}},
         {"worker", {{"requests_per_s", row.worker.requests}, {"bytes_per_s", row.worker.bytes}}},
         {"refused_per_s", row.refused},
         {"refused_by", refused_by},
         {"pid", row.pid != 0 ? Json(row.pid) : Json()}});
  }
  return text_of({{"seconds", seconds}, {"vdevs", vdevs}}, -1);
}

std::string json_of(const std::string& own, const v1::VersionResponse& daemon) {
  return text_of({{"vrdmactl", {{"version", own}}},
                  {"vrdmad", {{"version", daemon.version()}, {"pid", daemon.pid()}}}});
}

std::string json_of(const std::vector<std::string>& texts) {
  return array_of(texts, [](const std::string& text) -> Json { return text; });
}

std::string json_of_error(const std::string& sentence, int code) {
  return text_of({{"error", sentence}, {"errno", code}}, -1);
}

std::string event_name(v1::WatchEvent::Type type) {
  switch (type) {
    case v1::WatchEvent::ADDED:
      return "added";
    case v1::WatchEvent::CHANGED:
      return "changed";
    case v1::WatchEvent::REMOVED:
      return "removed";
    default:
      return "unknown";  // from a newer daemon
  }
}

}  // namespace vrdma::cli
