#include "cli/output.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <set>
#include <utility>

#include "api/parked_text.h"
#include "cli/address_text.h"
#include "cli/json.h"
#include "cli/size_text.h"
#include "cli/who.h"

namespace vrdma::cli {

namespace {

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%H:%M:%S", &parts)};
}

template <class Words>
std::string joined(const Words& words, const char* between = ", ") {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : between) + word;
  return line;
}

// "qp=64, mr_bytes=16G"
template <class Settings>
std::string quota_text(const Settings& settings, bool exact) {
  std::vector<std::string> words;
  for (const auto& row : settings)
    words.push_back(row.kind() + "=" + amount_text(row.kind(), row.limit(), exact));
  return joined(words);
}

// a=1,b=2
std::string labels_text(const v1::Vdev& vdev) {
  std::vector<std::string> words;
  for (const auto& [key, value] : sorted_labels(vdev.labels())) words.push_back(key + "=" + value);
  return joined(words, ",");
}

std::string who_among(const Output::Whose& whose, uint64_t id) {
  const auto it = whose.find(id);
  return it != whose.end() ? it->second : "";
}

// 10.0.0.1:7471, [fd00::1]:7471, *:7471; if the service is unknown to rdma_cm, its id follows.
std::string end_text(const v1::Connection& row, const std::string& gid, uint32_t port) {
  std::string text = gid.empty() ? "*" : address_text(gid);
  if (text == gid) text = "[" + gid + "]";
  if (!row.service().empty()) return text + ":" + (port != 0 ? std::to_string(port) : "*");
  std::array<char, 24> id{};
  (void)std::snprintf(id.data(), id.size(), "/%llx",
                      static_cast<unsigned long long>(row.service_id()));
  return text + id.data();
}

// NAKs, lost answers and timeouts.
uint64_t losses_of(const v1::QueuePair& row) {
  return row.packet_seq_err() + row.implied_nak_seq_err() + row.local_ack_timeout_err();
}

// "mediated (rate limit)"
std::string transport_text(const v1::QueuePair& row) {
  return row.because().empty() ? row.transport() : row.transport() + " (" + row.because() + ")";
}

// "2 direct, 1 network (resent 106, losses 3)"
std::string sum_of(const v1::Vdev& vdev, const std::vector<v1::QueuePair>& queue_pairs) {
  std::map<std::string, unsigned> transports;
  uint64_t resent = 0, losses = 0;
  for (const auto& row : queue_pairs) {
    if (row.vdev_id() != vdev.id()) continue;
    ++transports[row.transport().empty() ? "not connected" : transport_text(row)];
    resent += row.retransmitted();
    losses += losses_of(row);
  }
  std::vector<std::string> parts;
  for (const auto& [transport, count] : transports)
    parts.push_back(std::to_string(count) + " " + transport);
  if (parts.empty()) return "none";
  return joined(parts) + (resent + losses == 0 ? ""
                                               : " (resent " + std::to_string(resent) +
                                                     ", losses " + std::to_string(losses) + ")");
}

// Numbers and their names, in this order.
std::string counts_text(const std::vector<std::pair<const char*, uint64_t>>& counts) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts)
    parts.push_back(std::string(name) + " " + std::to_string(count));
  return joined(parts);
}

// Of `vdev show`. All but the process is what its program says.
std::vector<std::pair<std::string, std::string>> lines_of(const v1::Export& one) {
  const std::string driver = one.has_driver_version()
                                 ? "driver version " + std::to_string(one.driver_version())
                                 : "no driver";
  return {
      {"exported", "by process " + std::to_string(one.pid()) + ", which says:"},
      {"  socket", one.socket()},
      {"  machine", one.vmm_connected() ? "connected, " + driver : "none"},
      {"  doorbells", one.doorbell_mode().empty() ? "unknown" : one.doorbell_mode()},
      {"  counts", counts_text({{"doorbells", one.doorbells()},
                                {"registers", one.registers()},
                                {"commands", one.commands()},
                                {"interrupts", one.interrupts()}})},
      {"  refused", counts_text({{"attaches", one.attaches_refused()},
                                 {"commands", one.commands_refused()},
                                 {"doorbells", one.doorbells_refused()},
                                 {"requests", one.requests_refused()}})},
      {"  lost", counts_text({{"events", one.events_lost()}})},
      {"  replaced", std::to_string(one.replaced()) + (one.replaced() == 1 ? " time" : " times")}};
}

// 350ms, 12s, 5m, 3h, 9d
std::string age_text(uint64_t milliseconds) {
  if (milliseconds < 1000) return std::to_string(milliseconds) + "ms";
  const uint64_t seconds = milliseconds / 1000;
  for (const auto& [unit, length] :
       {std::pair{"d", uint64_t{86400}}, {"h", uint64_t{3600}}, {"m", uint64_t{60}}})
    if (seconds >= 2 * length) return std::to_string(seconds / length) + unit;
  return std::to_string(seconds) + "s";
}

// The name of a vdevice in a table: NAME, or NETNS/NAME if another vdevice in the table has that
// name. vrdmactl accepts both.
class ShownNames {
 public:
  void add(uint64_t id, const std::string& name) { ids_[name].insert(id); }
  [[nodiscard]] std::string of(const std::string& name, const std::string& netns) const {
    const auto it = ids_.find(name);
    return it != ids_.end() && it->second.size() > 1 ? netns + "/" + name : name;
  }

 private:
  std::map<std::string, std::set<uint64_t>> ids_;
};

ShownNames names_of(const std::vector<v1::Vdev>& vdevs) {
  ShownNames names;
  for (const auto& vdev : vdevs) names.add(vdev.id(), vdev.name());
  return names;
}

template <class Rows>
ShownNames names_of_rows(const Rows& rows) {
  ShownNames names;
  for (const auto& row : rows) names.add(row.vdev_id(), row.vdev());
  return names;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

// Its container has no netdev with an address yet.
// Of a port that is up, whether programs are parked is of more interest.
std::string state_of(const v1::Vdev& vdev) {
  return vdev.parked() > 0 && vdev.port_state() == "ACTIVE" ? "PARKED" : vdev.port_state();
}

bool is_pending(const v1::Vdev& vdev) { return vdev.port_state() == "PENDING"; }

}  // namespace

void Output::created(const v1::Vdev& vdev) {
  if (format_ == Format::kJson) out_ << json_of(vdev) << '\n';
}

void Output::names(const std::vector<v1::Vdev>& vdevs, const std::vector<v1::Vdev>& all) {
  const References references(all);
  std::vector<std::string> texts;
  for (const auto& vdev : vdevs) texts.push_back(references.of(vdev));
  if (format_ == Format::kJson) {
    out_ << json_of(texts) << '\n';
    return;
  }
  for (const auto& text : texts) out_ << text << '\n';
}

void Output::list(const std::vector<v1::Vdev>& vdevs, const std::vector<v1::Vdev>& all) {
  if (format_ == Format::kJson) {
    out_ << json_of(vdevs) << '\n';
    return;
  }
  List list(kVdevColumns, style_);
  const References references(all);
  for (const auto& vdev : vdevs)
    list.add({vdev.name(),
              state_of(vdev),
              vdev.netns(),
              vdev.netdev(),
              vdev.parent(),
              vdev.tenant(),
              vdev.fabric(),
              std::to_string(vdev.active_mtu()),
              std::to_string(vdev.gids_size()),
              std::to_string(vdev.sessions()),
              who_of(vdev),
              std::to_string(vdev.id()),
              references.of(vdev),
              labels_text(vdev),
              pod_of(vdev),
              container_of(vdev),
              vdev.has_owner() ? std::to_string(vdev.owner().pid()) : "",
              vdev.reach(),
              vdev.limited() || vdev.no_direct() ? "mediated" : "direct",
              joined(vdev.allowed(), ","),
              joined(vdev.addresses(), ","),
              vdev.node_guid(),
              std::to_string(vdev.ifindex()),
              std::to_string(vdev.netns_cookie()),
              vdev.gid_layout(),
              vdev.socket(),
              vdev.lost()});
  list.print(out_);
  if (!style_.columns.empty()) return;  // of a script
  const auto names = names_of(vdevs);
  for (const auto& vdev : vdevs)
    if (!vdev.lost().empty())
      out_ << names.of(vdev.name(), vdev.netns())
           << (is_pending(vdev) ? " is not complete yet: " : " cannot be restored: ") << vdev.lost()
           << '\n';
}

void Output::show(const std::vector<v1::Vdev>& vdevs,
                  const base::Result<std::vector<v1::QueuePair>>& queue_pairs,
                  const base::Result<std::vector<v1::Export>>& exports) {
  if (format_ == Format::kJson) {
    out_ << json_of(vdevs, exports) << '\n';
    return;
  }
  const auto line = [&](const std::string& key, const std::string& value) {
    out_ << "    " << padded(key, 15) << value << '\n';
  };
  for (const auto& vdev : vdevs) {
    out_ << vdev.name() << '\n';
    if (!vdev.lost().empty()) line(is_pending(vdev) ? "pending" : "lost", vdev.lost());
    if (!vdev.unserved().empty()) line("no worker", vdev.unserved());
    line("parent", vdev.parent());
    line("tenant", vdev.tenant());
    line("fabric", vdev.fabric());
    line("reach", vdev.reach());
    if (vdev.peers_size() > 0) line("peers", joined(vdev.peers()));
    line("id", std::to_string(vdev.id()));
    line("netns", vdev.netns() + " (cookie " + std::to_string(vdev.netns_cookie()) + ")");
    line("netdev", vdev.netdev() + " (index " + std::to_string(vdev.ifindex()) + ")");
    line("node guid", vdev.node_guid());
    line("port", vdev.port_state() + ", mtu " + std::to_string(vdev.active_mtu()));
    line("socket", vdev.socket());
    line("sessions", std::to_string(vdev.sessions()));
    line("traffic", vdev.limited() ? "mediated, because it is limited"
                    : vdev.no_direct()
                        ? "mediated, by --no-direct"
                        : "direct between processes that trust each other, else mediated");
    line("queue pairs",
         queue_pairs ? sum_of(vdev, *queue_pairs) : "not known: " + queue_pairs.error().message());
    if (!exports && vdev.lost().empty())
      line("exported", "not known: " + exports.error().message());
    for (const auto& one : exports.value_or(std::vector<v1::Export>()))
      if (one.vdev_id() == vdev.id())
        for (const auto& [key, value] : lines_of(one)) line(key, value);
    if (vdev.allowed_size() > 0) line("allowed", joined(vdev.allowed()));
    if (vdev.addresses_size() > 0)
      line("addresses", "of " + joined(vdev.addresses()) +
                            " only; ignored so far: " + std::to_string(vdev.addresses_ignored()));
    if (vdev.has_owner())
      line("owner", "process " + std::to_string(vdev.owner().pid()) +
                        (vdev.owner().ended()    ? ", which has ended"
                         : vdev.end_with_owner() ? "; the vdevice ends with it"
                                                 : ""));
    for (const auto& container : vdev.containers())
      line("container", container.id() + " (process " + std::to_string(container.pid()) + ")");
    for (const auto& [key, value] : sorted_labels(vdev.labels())) line("label", key + "=" + value);
    std::string reached;
    for (const auto& row : vdev.reached())
      reached += (reached.empty() ? "" : ", ") + row.reason() + " " + std::to_string(row.regions());
    if (!reached.empty()) line("reached", "regions not in place, by reason: " + reached);
    if (vdev.gid_layout() == "mlx5") line("gid layout", vdev.gid_layout());
    for (const auto& gid : vdev.gids())
      line("gid " + std::to_string(gid.index()), gid.gid() + " (" + gid.type() + ")");
    for (const auto& row : vdev.quota())
      line(row.kind(), amount_text(row.kind(), row.used(), style_.exact) + " of " +
                           amount_text(row.kind(), row.limit(), style_.exact));
  }
}

void Output::quota(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of_quota(vdevs) << '\n';
    return;
  }
  List table(kQuotaColumns, style_);
  const auto names = names_of(vdevs);
  for (const auto& vdev : vdevs)
    for (const auto& row : vdev.quota())
      table.add({names.of(vdev.name(), vdev.netns()), row.kind(),
                 amount_text(row.kind(), row.used(), style_.exact),
                 amount_text(row.kind(), row.limit(), style_.exact), vdev.tenant(), vdev.netns(),
                 std::to_string(vdev.id()), who_of(vdev)});
  table.print(out_);
}

void Output::gids(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of_gids(vdevs) << '\n';
    return;
  }
  List table(kGidColumns, style_);
  const auto names = names_of(vdevs);
  for (const auto& vdev : vdevs)
    for (const auto& gid : vdev.gids())
      table.add({names.of(vdev.name(), vdev.netns()), std::to_string(gid.index()), gid.gid(),
                 gid.type(), vdev.tenant(), vdev.fabric(), vdev.netns(), vdev.netdev(),
                 std::to_string(vdev.id()), who_of(vdev)});
  table.print(out_);
}

void Output::parents(const std::vector<v1::Parent>& parents) {
  if (format_ == Format::kJson) {
    out_ << json_of(parents) << '\n';
    return;
  }
  List table(kParentColumns, style_);
  for (const auto& parent : parents)
    table.add({parent.name(), parent.kind(), std::to_string(parent.vdevices()), parent.detail(),
               parent.state(), parent.has_numa_node() ? std::to_string(parent.numa_node()) : ""});
  table.print(out_);
}

void Output::classes(const std::vector<v1::Class>& classes) {
  if (format_ == Format::kJson) {
    out_ << json_of(classes) << '\n';
    return;
  }
  List table(kClassColumns, style_);
  for (const auto& its : classes) {
    if (!its.error().empty()) continue;
    table.add({its.name(), its.parent(), std::to_string(its.devices()), std::to_string(its.given()),
               its.free() == UINT32_MAX ? "any" : std::to_string(its.free()),
               quota_text(its.quota(), style_.exact), its.parent_state(),
               its.has_numa_node() ? std::to_string(its.numa_node()) : ""});
  }
  table.print(out_);
  for (const auto& its : classes)
    if (!its.error().empty()) out_ << its.name() << ": " << its.error() << '\n';
}

void Output::claims(const std::vector<v1::Claim>& claims) {
  if (format_ == Format::kJson) {
    out_ << json_of(claims) << '\n';
    return;
  }
  List table(kClaimColumns, style_);
  for (const auto& claim : claims)
    for (const auto& share : claim.shares())
      table.add({claim.uid(), claim.namespace_() + "/" + claim.name(), share.id(), share.class_(),
                 quota_text(share.quota(), style_.exact), std::to_string(share.vdevices())});
  table.print(out_);
}

void Output::budgets(const std::vector<v1::Budget>& budgets) {
  if (format_ == Format::kJson) {
    out_ << json_of(budgets) << '\n';
    return;
  }
  List table(kBudgetColumns, style_);
  for (const auto& budget : budgets) {
    const std::string overcommit = std::to_string(budget.overcommit()) + "%",
                      vdevices = std::to_string(budget.vdevices());
    bool shown = false;
    for (const auto& row : budget.rows()) {
      if (!row.has_default_() && !row.has_ceiling()) continue;
      shown = true;
      const auto amount = [&](uint64_t of) { return amount_text(row.kind(), of, style_.exact); };
      table.add({budget.name(), overcommit, vdevices, row.kind(),
                 row.has_default_() ? amount(row.default_()) : "",
                 row.has_ceiling() ? amount(row.ceiling()) : "", amount(row.given()),
                 amount(row.used())});
    }
    if (!shown) table.add({budget.name(), overcommit, vdevices, "", "", "", "", ""});
  }
  table.print(out_);
}

void Output::changed(const v1::Budget& budget) {
  if (format_ == Format::kJson) out_ << json_of(std::vector{budget}) << '\n';
}

void Output::fabrics(const std::vector<v1::Fabric>& fabrics) {
  if (format_ == Format::kJson) {
    out_ << json_of(fabrics) << '\n';
    return;
  }
  List table(kFabricColumns, style_);
  for (const auto& fabric : fabrics)
    table.add({fabric.name(), fabric.reach(), std::to_string(fabric.vdevices()),
               std::to_string(fabric.gids()),
               fabric.peers_size() > 0 ? joined(fabric.peers()) : "all"});
  table.print(out_);
}

void Output::changed(const v1::Fabric& fabric) {
  if (format_ == Format::kJson) out_ << json_of(std::vector{fabric}) << '\n';
}

void Output::cgroups(const std::vector<v1::CgroupUse>& uses) {
  if (format_ == Format::kJson) {
    out_ << json_of(uses) << '\n';
    return;
  }
  List table(kCgroupColumns, style_);
  const auto names = names_of_rows(uses);
  for (const auto& use : uses)
    for (const auto& row : use.use())
      table.add({use.cgroup(), names.of(use.vdev(), use.netns()), row.kind(),
                 amount_text(row.kind(), row.used(), style_.exact), use.netns(),
                 std::to_string(use.vdev_id())});
  table.print(out_);
}

void Output::connections(const std::vector<v1::Connection>& connections,
                         const base::Result<std::vector<v1::QueuePair>>& queue_pairs,
                         const Whose& whose) {
  if (format_ == Format::kJson) {
    out_ << json_of(connections) << '\n';
    return;
  }
  std::map<std::pair<uint64_t, uint32_t>, std::string> transports;
  if (queue_pairs)
    for (const auto& row : *queue_pairs)
      transports.emplace(std::pair(row.vdev_id(), row.qpn()), row.transport());
  List table(kConnectionColumns, style_);
  const auto names = names_of_rows(connections);
  for (const auto& row : connections) {
    const bool listens = row.state() == "LISTEN";
    const auto transport = transports.find({row.vdev_id(), row.local_qpn()});
    table.add({names.of(row.vdev(), row.netns()), row.tenant(),
               listens ? row.service() : row.transport(), row.state(),
               end_text(row, row.local(), row.local_port()),
               listens ? "" : end_text(row, row.remote(), row.remote_port()),
               row.local_qpn() != 0 ? std::to_string(row.local_qpn()) : "",
               transport != transports.end() ? transport->second : "",
               listens ? "" : age_text(row.age_ms()),
               row.remote_qpn() != 0 ? std::to_string(row.remote_qpn()) : "",
               listens        ? "listener"
               : row.active() ? "active"
                              : "passive",
               row.service(), listens ? std::to_string(row.waiting()) : "",
               listens ? std::to_string(row.backlog()) : "", row.fabric(), row.netns(),
               std::to_string(row.vdev_id()), who_among(whose, row.vdev_id())});
  }
  table.print(out_);
  if (!queue_pairs) out_ << "TRANSPORT is not known: " << queue_pairs.error().message() << '\n';
}

void Output::parked(const v1::ParkedProcess& process) {
  if (format_ == Format::kJson) {
    out_ << api::text_of(process) << '\n';
    return;
  }
  std::string vdevices;
  for (const auto& session : process.sessions())
    vdevices += (vdevices.empty() ? "" : ", ") + session.vdev();
  out_ << "process " << process.pid() << " is parked, with ";
  if (process.sessions_size() > 0)
    out_ << process.sessions_size()
         << (process.sessions_size() == 1 ? " session of " : " sessions of ") << vdevices;
  if (process.sessions_size() > 0 && process.connections_size() > 0) out_ << " and ";
  if (process.connections_size() > 0) out_ << "its use of rdma_cm";
  out_ << '\n';
}

// What is only of the network is empty for others.
void Output::queue_pairs(const std::vector<v1::QueuePair>& queue_pairs, const Whose& whose) {
  if (format_ == Format::kJson) {
    out_ << json_of(queue_pairs) << '\n';
    return;
  }
  List table(kQueuePairColumns, style_);
  const auto names = names_of_rows(queue_pairs);
  for (const auto& row : queue_pairs) {
    const bool on_network = row.transport() == "network";
    const auto number = [](bool shown, uint64_t value) {
      return shown ? std::to_string(value) : std::string();
    };
    table.add({names.of(row.vdev(), row.netns()),
               std::to_string(row.qpn()),
               std::to_string(row.pid()),
               row.type(),
               row.state(),
               transport_text(row),
               address_text(row.remote()),
               number(!row.remote().empty(), row.remote_qpn()),
               number(on_network && row.round_trip_us() != 0, row.round_trip_us()),
               number(on_network, row.window()),
               number(on_network, losses_of(row)),
               number(on_network, row.rnr_nak_retry_err()),
               number(on_network, row.retransmitted()),
               address_text(row.local()),
               number(on_network, row.unanswered()),
               number(row.rate() != 0, row.rate()),
               std::to_string(row.direct_requests() + row.worker_requests()),
               size_text(row.direct_bytes() + row.worker_bytes(), style_.exact),
               row.netns(),
               std::to_string(row.vdev_id()),
               who_among(whose, row.vdev_id())});
  }
  table.print(out_);
}

void Output::counters(const std::vector<v1::Counter>& counters) {
  if (format_ == Format::kJson) {
    out_ << json_of(counters) << '\n';
    return;
  }
  List table(kCounterColumns, style_);
  ShownNames names;
  for (const auto& counter : counters)
    if (counter.vdev_id() != 0) names.add(counter.vdev_id(), counter.scope());
  // Omits zero counters and those that `quota show` prints, which would hide the rest.
  for (const auto& counter : counters)
    if (counter.value() != 0 && counter.name().rfind("quota_limit_", 0) != 0)
      table.add(
          {counter.vdev_id() != 0 ? names.of(counter.scope(), counter.netns()) : counter.scope(),
           counter.name(), std::to_string(counter.value()), counter.tenant(), counter.netns(),
           counter.vdev_id() != 0 ? std::to_string(counter.vdev_id()) : ""});
  table.print(out_);
}

void Output::event(const v1::WatchEvent& event) {
  if (format_ == Format::kJson) {
    out_ << json_of(event) << std::endl;
    return;
  }
  const auto& vdev = event.vdev();
  out_ << time_of_day() << "  " << padded(event_name(event.type()), 7) << "  "
       << padded(vdev.name(), 12) << "  " << padded(vdev.port_state(), 6) << "  " << vdev.netns()
       << " " << vdev.netdev() << ", " << vdev.gids_size() << " gids: " << event.reason()
       << std::endl;
}

void Output::version(const std::string& own, const v1::VersionResponse& daemon) {
  if (format_ == Format::kJson) {
    out_ << json_of(own, daemon) << '\n';
    return;
  }
  out_ << "vrdmactl " << own << '\n'
       << "vrdmad   " << daemon.version() << " (pid " << daemon.pid() << ")\n";
}

}  // namespace vrdma::cli
