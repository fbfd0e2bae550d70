#include "tests/unit/vrdmad/admin/fake_backend.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/label.h"
#include "core/base/netns_cookie.h"

namespace vrdma::vrdmad {

namespace {

// Cookie of the daemon's own netns, so that a client can enter it; otherwise a number that no netns
// has.
uint64_t cookie_of(const std::string& netns) {
  std::string path = netns;
  if (netns.rfind("pid:", 0) == 0) path = "/proc/" + netns.substr(4) + "/ns/net";
  std::error_code ignored;
  return std::filesystem::equivalent(path, "/proc/self/ns/net", ignored)
             ? base::own_netns_cookie().value_or(0)
             : 4026532000;
}

base::Result<void> apply(VdevInfo& vdev, const std::vector<QuotaSetting>& quota) {
  VdevInfo changed = vdev;
  for (const auto& setting : quota) {
    auto row = std::find_if(changed.quota.begin(), changed.quota.end(),
                            [&](const QuotaRow& r) { return r.kind == setting.kind; });
    if (row == changed.quota.end())
      return base::fail(EINVAL, "quota of an unknown kind: " + setting.kind);
    if (setting.limit < row->used)
      return base::fail(EBUSY, "vdevice " + vdev.name + " has " + std::to_string(row->used) + " " +
                                   setting.kind + " in use, more than " +
                                   std::to_string(setting.limit));
    row->limit = setting.limit;
  }
  vdev = changed;
  return {};
}

}  // namespace

base::Result<VdevInfo> FakeBackend::find(const std::string& name) const {
  if (failure_.code() != 0) return base::pass(failure_);
  const size_t slash = std::min(name.rfind('/'), name.size());
  const std::string netns = name.substr(0, slash),
                    last = slash < name.size() ? name.substr(slash + 1) : "";
  std::vector<const VdevInfo*> found;
  if (name.starts_with("id:")) {
    const auto one = vdevs_.find(std::strtoull(name.c_str() + 3, nullptr, 10));
    if (one != vdevs_.end()) found.push_back(&one->second);
  } else {
    for (const auto& [id, vdev] : vdevs_)
      if (name == vdev.name || (last == vdev.name && netns == vdev.netns)) found.push_back(&vdev);
  }
  if (found.empty()) return base::fail(ENOENT, "no vdevice is named " + name);
  if (found.size() > 1) return base::fail(ENOTUNIQ, "several vdevices are named " + name);
  return *found[0];
}

base::Result<VdevInfo> FakeBackend::create_vdev(const VdevSpec& spec, bool if_absent) {
  return on_loop([&]() -> base::Result<VdevInfo> {
    if (failure_.code() != 0) return base::pass(failure_);
    auto existing = find(spec.netns + "/" + spec.name);
    if (existing && if_absent) return existing;
    if (existing) return base::fail(EEXIST, "vdevice " + spec.name + " exists already");
    if (spec.netns == "missing") return base::fail(ENOENT, "netns missing: No such file");
    if (spec.netdev == "missing") return base::fail(ENODEV, "netns a has no netdev missing");
    if (spec.parent != "soft") return base::fail(ENODEV, "no parent is named " + spec.parent);
    VdevInfo vdev;
    vdev.id = next_id_++;
    vdev.name = spec.name;
    vdev.parent = spec.parent;
    vdev.tenant = spec.tenant.empty() ? "vdev/" + std::to_string(vdev.id) : spec.tenant;
    vdev.fabric = spec.fabric.empty() ? vdev.tenant : spec.fabric;
    vdev.netns = spec.netns;
    vdev.netns_cookie = cookie_of(spec.netns);
    vdev.netdev = spec.netdev;
    vdev.ifindex = 2;
    vdev.node_guid = "0211:22ff:fe33:4455";
    vdev.port_state = "ACTIVE";
    vdev.active_mtu = 1024;
    vdev.socket = "/run/vrdma/netns/1/0.sock";
    vdev.gids = {{0, "fe80::11:22ff:fe33:4455", "RoCE v2"}, {1, "::ffff:10.0.0.1", "RoCE v2"}};
    vdev.quota = {{"qp", 2, 64}, {"mr", 0, 128}, {"mr_bytes", 0, uint64_t{1} << 34}};
    vdev.allowed = spec.allow;
    vdev.no_direct = spec.no_direct;
    vdev.owner = spec.owner;
    vdev.end_with_owner = spec.end_with_owner;
    vdev.labels = spec.labels;
    vdev.gid_layout = spec.gid_layout;
    if (auto applied = apply(vdev, spec.quota); !applied)
      return base::pass(std::move(applied).error(), "create vdevice " + spec.name);
    vdevs_[vdev.id] = vdev;
    tell({WatchEvent::Type::kAdded, vdev, "created"});
    return vdev;
  });
}

base::Result<VdevKey> FakeBackend::delete_vdev(const std::string& name) {
  return on_loop([&]() -> base::Result<VdevKey> {
    auto vdev = find(name);
    if (!vdev) return base::pass(std::move(vdev).error());
    vdevs_.erase(vdev->id);
    tell({WatchEvent::Type::kRemoved, *vdev, "deleted"});
    return VdevKey{vdev->id, vdev->name, vdev->netns};
  });
}

base::Result<VdevInfo> FakeBackend::get_vdev(const std::string& name, bool) {
  return on_loop([&] { return find(name); });
}

std::vector<VdevInfo> FakeBackend::list_vdevs() {
  return on_loop([&] {
    std::vector<VdevInfo> vdevs;
    for (const auto& [id, vdev] : vdevs_) vdevs.push_back(vdev);
    std::reverse(vdevs.begin(), vdevs.end());  // the service must not rely on the order
    return vdevs;
  });
}

base::Result<VdevInfo> FakeBackend::set_quota(const std::string& name,
                                              const std::vector<QuotaSetting>& quota) {
  return on_loop([&]() -> base::Result<VdevInfo> {
    auto vdev = find(name);
    if (!vdev) return vdev;
    if (auto applied = apply(*vdev, quota); !applied) return base::pass(std::move(applied).error());
    vdevs_[vdev->id] = *vdev;
    tell({WatchEvent::Type::kChanged, *vdev, "quota changed"});
    return vdev;
  });
}

base::Result<VdevInfo> FakeBackend::set_labels(const std::string& name, const LabelChange& change) {
  return on_loop([&]() -> base::Result<VdevInfo> {
    auto vdev = find(name);
    if (!vdev) return vdev;
    for (const auto& key : change.removed) vdev->labels.erase(key);
    for (const auto& [key, value] : change.set) vdev->labels[key] = value;
    if (auto ok = base::check_labels(vdev->labels); !ok) return base::pass(std::move(ok).error());
    vdevs_[vdev->id] = *vdev;
    tell({WatchEvent::Type::kChanged, *vdev, "labels changed"});
    return vdev;
  });
}

base::Result<BudgetInfo> FakeBackend::set_budget(const BudgetSpec& spec) {
  return on_loop([&]() -> base::Result<BudgetInfo> {
    if (failure_.code() != 0) return base::pass(failure_);
    BudgetInfo budget = budgets_[{spec.scope, spec.name}];
    budget.scope = spec.scope;
    budget.name = spec.name;
    if (spec.overcommit != 0) budget.overcommit = spec.overcommit;
    for (const auto& setting : spec.defaults)
      budget.rows.push_back({setting.kind, setting.limit, std::nullopt, 2, 1});
    for (const auto& setting : spec.ceilings) {
      if (setting.kind == "qp" && setting.limit < 2)
        return base::fail(EBUSY, "tenant " + spec.name + ": 2 qp are in use");
      budget.rows.push_back({setting.kind, std::nullopt, setting.limit, 2, 1});
    }
    return budgets_[{spec.scope, spec.name}] = budget;
  });
}

std::vector<BudgetInfo> FakeBackend::list_budgets(BudgetSpec::Scope scope) {
  return on_loop([&] {
    std::vector<BudgetInfo> all;
    for (const auto& [key, budget] : budgets_)
      if (key.first == scope) all.push_back(budget);
    return all;
  });
}

std::map<std::string, FabricInfo> FakeBackend::fabrics() const {
  std::map<std::string, FabricInfo> all;
  for (const auto& [name, settings] : fabrics_) all[name].spec = settings;
  for (const auto& [id, vdev] : vdevs_) {
    FabricInfo& its = all[vdev.fabric];
    its.spec.name = vdev.fabric;
    ++its.vdevices;
    its.gids += static_cast<uint32_t>(vdev.gids.size());
  }
  return all;
}

base::Result<FabricInfo> FakeBackend::set_fabric(const FabricChange& change) {
  return on_loop([&]() -> base::Result<FabricInfo> {
    if (failure_.code() != 0) return base::pass(failure_);
    if (change.name == "taken" && change.reach == Reach::kNetwork)
      return base::fail(EADDRINUSE, "GID fd00::1 is held by vdevice a/red0 in fabric red");
    FabricSpec& settings = fabrics_[change.name];
    settings.name = change.name;
    settings.reach = change.reach.value_or(settings.reach);
    settings.peers = change.peers.value_or(settings.peers);
    for (auto& [id, vdev] : vdevs_) {
      if (vdev.fabric != change.name) continue;
      vdev.reach = settings.reach;
      vdev.peers = settings.peers;
    }
    return fabrics().at(change.name);
  });
}

std::vector<FabricInfo> FakeBackend::list_fabrics() {
  return on_loop([&] {
    std::vector<FabricInfo> all;
    for (const auto& [name, fabric] : fabrics()) all.push_back(fabric);
    return all;
  });
}

base::Result<std::vector<CgroupRow>> FakeBackend::list_cgroups(const std::string& vdev) {
  return on_loop([&]() -> base::Result<std::vector<CgroupRow>> {
    auto only = vdev.empty() ? VdevInfo() : find(vdev);
    if (!only) return base::pass(std::move(only.error()));
    std::vector<CgroupRow> all;
    for (const auto& [id, one] : vdevs_)
      if (vdev.empty() || only->id == id)
        all.push_back(
            {"/" + one.netdev + "/" + one.name, {id, one.name, one.netns}, {{"qp", 2, 0}}});
    return all;
  });
}

std::vector<ParentInfo> FakeBackend::list_parents() {
  return on_loop([&] {
    return std::vector<ParentInfo>{{"soft", "built in", static_cast<uint32_t>(vdevs_.size()),
                                    "shared memory and sockets", "ACTIVE", 1}};
  });
}

base::Result<std::vector<ClassInfo>> FakeBackend::list_classes() {
  return on_loop([&] { return classes_; });
}

void FakeBackend::set_classes(base::Result<std::vector<ClassInfo>> classes) {
  on_loop([&] {
    classes_ = std::move(classes);
    return true;
  });
}

base::Result<ClaimInfo> FakeBackend::put_claim(const ClaimSpec& claim) {
  return on_loop([&]() -> base::Result<ClaimInfo> {
    if (failure_.code() != 0) return base::pass(failure_);
    if (claim.uid == "held") return base::fail(EBUSY, "claim 'held' is held");
    return claims_[claim.uid] = {claim, std::vector<uint32_t>(claim.shares.size())};
  });
}

base::Result<void> FakeBackend::delete_claim(const std::string& uid, bool force) {
  return on_loop([&]() -> base::Result<void> {
    if (failure_.code() != 0) return base::pass(failure_);
    if (uid == "held" && !force) return base::fail(EBUSY, "claim 'held' is held");
    claims_.erase(uid);
    return {};
  });
}

std::vector<ClaimInfo> FakeBackend::list_claims() {
  return on_loop([&] {
    std::vector<ClaimInfo> all;
    for (const auto& [uid, claim] : claims_) all.push_back(claim);
    return all;
  });
}

base::Result<ParkedProcess> FakeBackend::park_process(int32_t pid) {
  return on_loop([&]() -> base::Result<ParkedProcess> {
    if (pid != 4711)
      return base::fail(ENOENT, "process " + std::to_string(pid) + " has no vdevice open");
    parked_ = {pid,
               "6f1a",
               {{3, {7, "red0", "red"}, "/run/0.sock", {1, 2, 3, 4, 5, {{6, 7}}}}},
               {{"/run/rdma_cm", {8, 9}, {0x2a, 0xff}}},
               {{4, {8, "red1", "red"}, "/run/1.sock", {11, 12, 13, 14, 15, {}}, 4712, true}}};
    return parked_;
  });
}

base::Result<ParkedProcess> FakeBackend::parked_process(const std::string& process) {
  if (auto known = of_parked(process, "show"); !known) return base::pass(std::move(known).error());
  return on_loop([&] { return parked_; });
}

base::Result<void> FakeBackend::of_parked(const std::string& process, const char* what) {
  return on_loop([&]() -> base::Result<void> {
    if (process != "4711" && process != parked_.token) return base::fail(ENOENT, "no such process");
    last_step_ = what;
    return {};
  });
}

base::Result<void> FakeBackend::detach_process(const std::string& process) {
  return of_parked(process, "detach");
}

base::Result<void> FakeBackend::resume_process(const std::string& process) {
  return of_parked(process, "resume");
}

base::Result<void> FakeBackend::abandon_process(const std::string& process) {
  return of_parked(process, "abandon");
}

base::Result<ParkedProcess> FakeBackend::place_process(const AttachedProcess& process) {
  AttachedProcess placed = process;
  for (ParkedSession& one : placed.sessions) one.socket = "/run/7.sock";
  return placed;
}

base::Result<void> FakeBackend::attach_process(const AttachedProcess& process) {
  on_loop([&] {
    parked_ = process;
    return true;
  });
  return of_parked(process.token, "attach");
}

ParkedProcess FakeBackend::attached() {
  return on_loop([&] { return parked_; });
}

std::string FakeBackend::last_step() {
  return on_loop([&] { return last_step_; });
}

base::Result<std::vector<CounterRow>> FakeBackend::counters(const std::string& scope) {
  return on_loop([&]() -> base::Result<std::vector<CounterRow>> {
    const bool all = scope.empty(), daemon = scope == "daemon";
    if (scope.rfind("tenant/", 0) == 0)
      return base::fail(ENOENT, "there is no tenant '" + scope.substr(7) + "' with vdevices");
    auto only = all || daemon ? VdevInfo() : find(scope);
    if (!only) return base::pass(std::move(only.error()));
    std::vector<CounterRow> rows;
    if (all || daemon) rows.push_back({"daemon", "vdevices", vdevs_.size()});
    for (const auto& [id, vdev] : vdevs_) {
      if (daemon || (!all && only->id != id)) continue;
      const auto add = [&, number = id, &of = vdev](const char* name, uint64_t value,
                                                    std::pair<std::string, std::string> label) {
        rows.push_back(
            {of.name, name, value, std::move(label), false, of.tenant, number, of.netns});
      };
      add("sessions", 7, {});
      add("cm_sent_req", 5, {});
      for (int i = 0; i < more_counters_; ++i)
        add("work_failed", UINT64_MAX, {"status", std::to_string(i)});
    }
    return rows;
  });
}

ActivityInfo FakeBackend::activity() {
  return on_loop([&] {
    ActivityInfo info{{}, told_ + 1, 7};
    for (const auto& [id, vdev] : vdevs_) {
      ActivityRow& row = info.vdevs.emplace_back();
      row.vdev_id = id;
      row.sessions = 2;
      row.worker = {5, 600};
      row.refused = {{"quota:qp", 3}};
      row.usage = {{"mr", 4, 10}};
    }
    return info;
  });
}

base::Result<std::vector<ExportRow>> FakeBackend::list_exports(const std::string& vdev) {
  return on_loop([&]() -> base::Result<std::vector<ExportRow>> {
    auto only = vdev.empty() ? VdevInfo() : find(vdev);
    if (!only) return base::pass(std::move(only.error()));
    std::vector<ExportRow> rows;
    for (const auto& [id, info] : vdevs_) {
      if (!vdev.empty() && only->id != id) continue;
      ExportRow row;
      row.vdev = {id, info.name, info.netns};
      row.pid = 4711;
      row.is = {
          "/run/vm0.sock", true, ipc::DoorbellMode::kTrap, 20, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
      rows.push_back(row);
      row.is = {};
      rows.push_back(row);
    }
    return rows;
  });
}

base::Result<std::vector<QueuePairRow>> FakeBackend::list_queue_pairs(const std::string& vdev) {
  return on_loop([&]() -> base::Result<std::vector<QueuePairRow>> {
    auto only = vdev.empty() ? VdevInfo() : find(vdev);
    if (!only) return base::pass(std::move(only.error()));
    std::vector<QueuePairRow> rows;
    for (const auto& [id, info] : vdevs_) {
      if (!vdev.empty() && only->id != id) continue;
      QueuePairRow row;
      row.vdev = {id, info.name, info.netns};
      row.qpn = 17;
      row.pid = 4711;
      row.type = "UD";
      row.state = "RTS";
      row.transport = "mediated";
      row.because = "type";
      rows.push_back(row);
      row.qpn = 18;
      row.type = "RC";
      row.transport = "network";
      row.because.clear();
      row.local = "::ffff:10.0.0.1";
      row.remote = "::ffff:10.0.0.2";
      row.remote_qpn = 19;
      row.network = {120, 256, 3, 1'000'000, {5, 6, 7, 8, 90}};
      row.by_worker = {21, 4096};
      rows.push_back(row);
    }
    return rows;
  });
}

base::Result<std::vector<ConnectionRow>> FakeBackend::list_connections(const std::string& vdev) {
  return on_loop([&]() -> base::Result<std::vector<ConnectionRow>> {
    auto only = vdev.empty() ? VdevInfo() : find(vdev);
    if (!only) return base::pass(std::move(only.error()));
    std::vector<ConnectionRow> rows;
    for (const auto& [id, info] : vdevs_) {
      if (!vdev.empty() && only->id != id) continue;
      ConnectionRow row;
      row.vdev = {id, info.name, info.netns};
      row.tenant = info.tenant;
      row.state = "LISTEN";
      row.service = "tcp";
      row.service_id = 0x1061d2f;
      row.local_port = 7471;
      row.waiting = 1;
      row.backlog = 16;
      rows.push_back(row);
      row.state = "ESTABLISHED";
      row.transport = "RC";
      row.local = "::ffff:10.0.0.1";
      row.remote = "fd00::2";
      row.remote_port = 40000;
      row.local_qpn = 17;
      row.remote_qpn = 18;
      row.age_ms = 7'300'000;
      rows.push_back(row);
    }
    return rows;
  });
}

std::shared_ptr<void> FakeBackend::watch(WatchCallback callback) {
  const uint64_t id = on_loop([&] {
    for (const auto& [number, vdev] : vdevs_) callback({WatchEvent::Type::kAdded, vdev, "exists"});
    watches_[next_watch_] = std::move(callback);
    return next_watch_++;
  });
  return {nullptr, [this, id](void*) { on_loop([this, id] { return watches_.erase(id); }); }};
}

size_t FakeBackend::watchers() {
  return on_loop([&] { return watches_.size(); });
}

void FakeBackend::announce(const WatchEvent& event, int times) {
  on_loop([&] {
    for (int i = 0; i < times; ++i) tell(event);
    return 0;
  });
}

void FakeBackend::add_counters(int rows) {
  on_loop([&] { return more_counters_ = rows; });
}

void FakeBackend::fail_with(int code, std::string message) {
  on_loop([&] {
    failure_ = base::Error(code, std::move(message));
    return 0;
  });
}

void FakeBackend::tell(const WatchEvent& event) {
  ++told_;
  for (const auto& [id, callback] : watches_) callback(event);
}

std::vector<EventRow> FakeBackend::list_events(EventRow::Time since, size_t most) {
  EventRow event;
  event.number = 7;
  event.first = event.last = EventRow::Time(std::chrono::seconds(1'000'000'000));
  event.count = 3;
  event.type = "quota";
  event.vdev = {1, "red0", "red"};
  event.tenant = "shop";
  event.who = "web/web-0";
  event.pid = 42;
  event.program = "ib\n";
  event.reason = "too many";
  return event.last >= since && most > 0 ? std::vector{event} : std::vector<EventRow>();
}

std::shared_ptr<void> FakeBackend::watch_events(EventRow::Time since, EventCallback callback) {
  for (const auto& event : list_events(since)) callback(event);
  for (auto& event : list_events({})) {
    event.count = 4;
    callback(event);
  }
  return nullptr;
}

}  // namespace vrdma::vrdmad
