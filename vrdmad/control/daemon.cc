#include "vrdmad/control/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <utility>

#include "core/base/printable.h"
#include "gid/interface.h"
#include "netns/netns.h"
#include "provisioning/cgroup.h"
#include "vrdmad/cm/rows.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

constexpr size_t kMaxName = 63;  // IBV_SYSFS_NAME_MAX, with its terminating zero

uint32_t roce_mtu(uint32_t netdev_mtu) {
  rdma::Device port;
  port.mtu = netdev_mtu;
  return port.roce_mtu();
}

// In the order in which it had them.
std::vector<verbs::Gid> still_there(const std::vector<verbs::Gid>& had,
                                    const std::vector<verbs::Gid>& gids) {
  std::vector<verbs::Gid> result;
  for (const auto& gid : had)
    if (std::find(gids.begin(), gids.end(), gid) != gids.end()) result.push_back(gid);
  return result;
}

}  // namespace

Result<void> check_name(const std::string& what, const std::string& name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  const bool starts_well = !name.empty() && fits(name[0]) && name[0] != '-' && name[0] != '.';
  if (!starts_well || name.size() > kMaxName || !std::all_of(name.begin(), name.end(), fits))
    return fail(EINVAL, what + " '" + base::printable(name) +
                            "' is no name: it needs 1 to 63 letters, digits, '_', '-' or '.', and "
                            "begins with a letter, a digit or '_'");
  return {};
}

// check_name() refuses a slash, so no operator can give such a name to another vdevice, and two
// that were made without a tenant are never one domain.
std::string tenant_of(const VdevSpec& spec) {
  return spec.tenant.empty() ? "vdev/" + spec.name : spec.tenant;
}

std::string fabric_of(const VdevSpec& spec) {
  if (!spec.fabric.empty()) return spec.fabric;
  return spec.tenant.empty() ? tenant_of(spec) : "tenant/" + spec.tenant;
}

std::vector<QuotaRow> to_rows(const std::vector<provisioning::Row>& rows) {
  std::vector<QuotaRow> result;
  for (const auto& row : rows) {
    const auto& traits = provisioning::traits(row.kind);
    // A rate as high as can be said is none.
    const bool any = traits.measure == provisioning::Measure::kRate && row.limit == traits.ceiling;
    result.push_back({std::string(traits.name), row.used, any ? UINT64_MAX : row.limit});
  }
  return result;
}

std::vector<provisioning::Setting> to_settings(const std::vector<QuotaSetting>& quota) {
  std::vector<provisioning::Setting> settings;
  for (const auto& one : quota) settings.push_back({one.kind, one.limit});
  return settings;
}

class Daemon::Subscription {
 public:
  Subscription(Daemon& daemon, uint64_t id) : daemon_(daemon), id_(id) {}
  ~Subscription() {
    daemon_.call([this] { daemon_.subscribers_.erase(id_); });
  }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  Daemon& daemon_;
  uint64_t id_;
};

Daemon::Daemon(base::EventLoop& loop, const RunDir& run_dir, Store& store,
               const SessionSettings& settings)
    : loop_(loop), run_dir_(run_dir), store_(store), settings_(settings) {}

Result<std::unique_ptr<Daemon>> Daemon::start(base::EventLoop& loop, const RunDir& run_dir,
                                              Store& store, const SessionSettings& settings,
                                              unsigned workers) {
  std::unique_ptr<Daemon> daemon(new Daemon(loop, run_dir, store, settings));
  auto sessions = daemon->find_sessions();
  auto monitor = netns::Monitor::create(&loop);
  if (!monitor) return pass(std::move(monitor.error()), "watch network namespaces");
  daemon->monitor_ = std::move(*monitor);
  if (!provisioning::has_rdma_controller())
    spdlog::info("the kernel has no rdma controller of control groups: our own limits hold alone");
  for (unsigned i = 0; i < workers; ++i) {
    auto worker = Worker::start(daemon->settings_, i);
    if (!worker) return pass(std::move(worker.error()));
    daemon->workers_.push_back(std::move(*worker));
  }
  if (auto restored = daemon->restore_all(); !restored) return pass(std::move(restored.error()));
  daemon->adopt(std::move(sessions));
  return daemon;
}

Daemon::~Daemon() {
  cm_.leave_sessions();
  for (auto& worker : workers_) worker->leave_sessions();
  records_.clear();
}

Worker& Daemon::worker_of(const std::string& fabric) {
  return *workers_[std::hash<std::string>()(fabric) % workers_.size()];
}

Result<Daemon::Record*> Daemon::find(const std::string& name) {
  const auto it = records_.find(name);
  if (it != records_.end()) return it->second.get();
  if (const auto lost = lost_.find(name); lost != lost_.end())
    return fail(ENODEV, "vdevice '" + name + "' is lost: " + lost->second.reason);
  return fail(ENOENT, "there is no vdevice '" + name + "'");
}

Daemon::Record* Daemon::find(const std::string& name, uint64_t id) {
  const auto it = records_.find(name);
  return it != records_.end() && it->second->id == id ? it->second.get() : nullptr;
}

// `wanted`, or the next one that no vdevice of the namespace has. A lost one keeps its own.
uint32_t Daemon::free_number(uint64_t cookie, uint32_t wanted, const std::string& name) const {
  std::set<uint32_t> taken;
  for (const auto& [other, record] : records_)
    if (record->link.netns_cookie == cookie) taken.insert(record->number);
  for (const auto& [other, lost] : lost_)
    if (other != name && lost.vdev.boot_id == boot_id_ && lost.vdev.netns_cookie == cookie)
      taken.insert(lost.vdev.number);
  while (taken.contains(wanted)) ++wanted;
  return wanted;
}

Result<std::unique_ptr<Daemon::Record>> Daemon::make(const VdevSpec& spec,
                                                     const StoredVdev* stored) {
  if (auto ok = check_name("the vdevice", spec.name); !ok) return pass(std::move(ok.error()));
  if (records_.contains(spec.name))
    return fail(EEXIST, "there is a vdevice '" + spec.name + "' already");
  auto record = std::make_unique<Record>();
  const uint64_t id = record->id = next_record_++;
  record->spec = spec;
  if (!spec.tenant.empty())
    if (auto ok = check_name("the tenant", spec.tenant); !ok) return pass(std::move(ok.error()));
  const std::string tenant = record->tenant = tenant_of(spec);
  record->fabric = fabric_of(spec);
  if (!spec.fabric.empty())
    if (auto ok = check_name("the fabric", spec.fabric); !ok) return pass(std::move(ok.error()));
  const auto parent = std::find_if(parents_.begin(), parents_.end(), [&](const auto& candidate) {
    return candidate->name() == spec.parent;
  });
  if (parent == parents_.end())
    return fail(ENODEV, "there is no parent '" + spec.parent + "': see `vrdmactl parent list`");
  if (auto ok = (*parent)->admit(spec.netdev); !ok) return pass(std::move(ok.error()));

  auto allotment = budgets_.allot(tenant, spec.parent, to_settings(spec.quota));
  if (!allotment) return pass(std::move(allotment.error()));
  record->allotment = std::move(*allotment);
  record->spec.quota.clear();  // with the defaults of this day
  for (const auto& setting : record->allotment.settings())
    record->spec.quota.push_back({setting.kind, setting.limit});
  provisioning::Ledger ledger, cm_ledger;
  for (auto* each : {&ledger, &cm_ledger}) {
    for (const auto& pool : record->allotment.pools()) each->draw_from(pool);
    if (auto ok = each->set_limits(record->allotment.settings()); !ok)
      return pass(std::move(ok.error()));
  }

  record->spec.addresses.clear();
  for (const auto& text : spec.addresses) {
    auto prefix = gid::Prefix::parse(text);
    if (!prefix) return pass(std::move(prefix.error()));
    record->spec.addresses.push_back(prefix->text());
    record->prefixes.push_back(*prefix);
  }

  auto permissions = provisioning::Permissions::of(spec.allow);
  if (!permissions) return pass(std::move(permissions.error()));
  record->spec.allow = permissions->names();

  auto netns = stored != nullptr ? locate(*stored) : netns::resolve(spec.netns);
  if (!netns) return pass(std::move(netns.error()));
  const std::string& name = spec.name;
  netns::LinkObserver observer = {
      [this, name](const netns::Link& link) { on_link_changed(name, link); },
      [this, name, id](netns::Gone gone) { on_link_gone(name, id, netns::text(gone)); }};
  // Within one boot it must be the very one, which may have another name by now.
  const bool very_one = stored != nullptr && stored->boot_id == boot_id_;
  auto watch = very_one ? monitor_->watch_link(*netns, stored->ifindex, std::move(observer))
                        : monitor_->watch_link(*netns, spec.netdev, std::move(observer));
  if (!watch && very_one && watch.error().code() == ENODEV)
    return fail(ENODEV, "netns '" + spec.netns + "': the netdev '" + spec.netdev +
                            "' that it was made on is not there");
  if (!watch) return pass(std::move(watch.error()), "netns '" + spec.netns + "'");
  record->watch = std::move(*watch);
  record->link = record->watch.link();
  record->spec.netdev = record->link.name;
  if (stored != nullptr) record->stored = *stored;

  auto directory = run_dir_.make_netns_dir(netns->cookie);
  if (!directory) return pass(std::move(directory.error()));
  record->netns_dir = std::shared_ptr<void>(
      nullptr, [this, cookie = netns->cookie](void*) { run_dir_.remove_netns_dir(cookie); });
  record->number = free_number(netns->cookie, stored != nullptr ? stored->number : 0, name);

  const std::vector<verbs::Gid> had = stored != nullptr ? stored->gids : std::vector<verbs::Gid>();
  record->first_addresses = stored != nullptr ? stored->first_addresses : all_gids(record->link);
  const auto gids = gid::derive_gids(interface_of(*record), had).gids;
  auto holding = gids_.claim(record->fabric, name,
                             stored != nullptr ? std::vector<verbs::Gid>() : gids, [this, name] {
                               loop_.post([this, name] {
                                 auto found = find(name);
                                 if (!found) return;
                                 apply(**found);
                                 store_again(**found);
                               });
                             });
  if (!holding) return pass(std::move(holding.error()));
  record->gids = std::move(*holding);
  record->node_guid = stored != nullptr ? stored->node_guid : gid::make_node_guid();

  Worker& worker = worker_of(record->fabric);
  const auto qp_numbers = std::make_shared<rdma::QpNumbers>();
  if (permissions->has(provisioning::Permission::kQp1))
    record->gsi = std::make_shared<RawGsi>(loop_);
  const auto account = std::make_shared<Intake::Account>(settings_.intake);
  worker.add({name, tenant, record->fabric, netns->cookie, record->node_guid.big_endian(),
              std::move(ledger), qp_numbers, *permissions, record->allotment.rates(),
              record->allotment.limited(), (*parent)->ibdev(), record->gsi, spec.no_direct,
              account});
  record->in_worker =
      std::shared_ptr<void>(nullptr, [&worker, name](void*) { worker.remove(name); });
  auto cm = cm_.attach({name, tenant, record->fabric, netns->cookie, record->node_guid.big_endian(),
                        qp_numbers, std::move(cm_ledger), record->gsi});
  if (!cm) return pass(std::move(cm.error()));
  record->cm = std::move(*cm);
  record->sysfs = std::make_unique<SysfsTree>(run_dir_.sysfs_dir(netns->cookie) + "/" + name);
  if (stored != nullptr)  // what it did not have before may be another's, who is made only after it
    apply(*record, still_there(had, gids));
  else
    apply(*record);

  set_entrance(*record);
  auto socket = SessionSocket::listen(
      *settings_.identity, loop_, *directory + "/" + std::to_string(record->number) + ".sock",
      netns->cookie,
      {account, record->entrance,
       [&worker, name](Arrival arrival) { worker.accept(name, std::move(arrival)); },
       [raw = record.get(), name] {
         // Who wants to can come a million times.
         if (std::has_single_bit(++raw->foreign))
           spdlog::warn(
               "vdevice {}: refused a connection from another network namespace, {} so far", name,
               raw->foreign);
       }});
  if (!socket) return pass(std::move(socket.error()));
  record->socket = std::move(*socket);
  auto cm_socket = cm_.socket(netns->cookie, *directory);
  if (!cm_socket) return pass(std::move(cm_socket.error()));
  record->cm_socket = std::move(*cm_socket);
  return record;
}

void Daemon::apply(Record& record) {
  const auto derived = gid::derive_gids(interface_of(record), record.gids.gids());
  count_ignored(record);
  if (derived.left_out > 0 && !std::exchange(record.crowded, true))
    spdlog::warn("vdevice {}: {} addresses of its netdev get no GID: a table holds {}",
                 record.spec.name, derived.left_out, verbs::kMaxGids);
  apply(record, derived.gids);
}

void Daemon::apply(Record& record, const std::vector<verbs::Gid>& gids) {
  const netns::Link& link = record.link;
  auto update = record.gids.update(gids);
  for (const auto& refusal : update.refusals)
    spdlog::warn("vdevice {}: {}", record.spec.name, refusal.sentence);
  Worker& worker = worker_of(record.fabric);
  worker.set_port(record.spec.name, {link.up, link.mtu, link.ifindex, link.mac});
  worker.set_gids(record.spec.name, record.gids.gids());
  record.cm->update(record.gids.gids(), roce_mtu(link.mtu));
  const auto shown =
      record.sysfs->show({record.spec.name, record.node_guid.text(), "vrdma-" VRDMA_VERSION,
                          link.name, link.up, record.gids.gids()});
  if (!shown)
    spdlog::warn("vdevice {}: its sysfs files: {}", record.spec.name, shown.error().message());
}

void Daemon::on_link_changed(const std::string& name, const netns::Link& link) {
  auto found = find(name);
  if (!found) return;
  Record& record = **found;
  std::string reason = "addresses changed";
  if (record.link.name != link.name) reason = "netdev renamed to " + link.name;
  if (record.link.up != link.up) reason = link.up ? "link up" : "link down";
  record.link = link;
  record.spec.netdev = link.name;
  apply(record);
  store_again(record);
  tell(WatchEvent::Type::kChanged, info(record), reason);
}

void Daemon::on_link_gone(const std::string& name, uint64_t id, const std::string& reason) {
  spdlog::info("vdevice {}: {}, so it is deleted", name, reason);
  // Not inside the monitor's call about the very link.
  loop_.post([this, name, id, reason] {
    const auto found = find(name);
    if (!found || (*found)->id != id) return;
    remove(name, reason);
    forget_later(name);  // otherwise it is lost after the next start
  });
}

void Daemon::remove(const std::string& name, const std::string& reason) {
  const Record& record = *records_.at(name);
  const VdevInfo last = info(record);
  for (const auto& row : counter_rows(record))
    if (!row.gauge) gone_.add(row);
  take_out(name);
  tell(WatchEvent::Type::kRemoved, last, reason);
}

void Daemon::take_out(const std::string& name) {
  const std::unique_ptr<Record> gone = std::move(records_.extract(name).mapped());
  gone->socket = nullptr;
  gone->cm_socket = nullptr;
  gone->cm = nullptr;
  gone->in_worker = nullptr;
  gone->watch = {};
  members_changed(gone->fabric);
}

// Not when its last vdevice goes: the next one may be made at once.
void Daemon::forget_tenants() {
  std::set<std::string> known;
  for (const auto& [name, budget] : budgets_.list(Budgets::Scope::kTenant)) known.insert(name);
  for (const auto& [name, lost] : lost_) known.insert(tenant_of(lost.vdev.spec));
  gone_.keep(known);
}

VdevInfo Daemon::info(const Record& record) {
  const VdeviceUse use = worker_of(record.fabric).use(record.spec.name);
  VdevInfo info;
  info.name = record.spec.name;
  info.parent = record.spec.parent;
  info.tenant = record.tenant;
  info.fabric = record.fabric;
  info.netns = record.spec.netns;
  info.netns_cookie = record.link.netns_cookie;
  info.netdev = record.link.name;
  info.ifindex = record.link.ifindex;
  info.node_guid = record.node_guid.text();
  info.port_state = record.link.up ? "ACTIVE" : "DOWN";
  info.active_mtu = roce_mtu(record.link.mtu);
  info.socket = run_dir_.path() + "/netns/" + std::to_string(record.link.netns_cookie) + "/" +
                std::to_string(record.number) + ".sock";
  info.sessions = use.sessions;
  for (const auto& gid : record.gids.gids())
    info.gids.push_back({static_cast<uint32_t>(info.gids.size()), gid.text(), "RoCE v2"});
  info.quota = to_rows(quota_rows(record, use));
  info.allowed = record.spec.allow;
  info.limited = record.allotment.limited();
  info.no_direct = record.spec.no_direct;
  for (const auto& prefix : prefixes_of(record)) info.addresses.push_back(prefix.text());
  info.addresses_ignored = record.ignored_so_far;
  info.reached = reached_by_reason(use);
  return info;
}

void Daemon::tell(WatchEvent::Type type, const VdevInfo& vdev, const std::string& reason) {
  for (const auto& [id, callback] : subscribers_) callback({type, vdev, reason});
}

Result<VdevInfo> Daemon::get_vdev(const std::string& name) {
  return call([&]() -> Result<VdevInfo> {
    if (const auto lost = lost_.find(name); lost != lost_.end()) return info(lost->second);
    auto found = find(name);
    if (!found) return pass(std::move(found.error()));
    return info(**found);
  });
}

std::vector<VdevInfo> Daemon::list_vdevs() {
  return call([&] {
    std::vector<VdevInfo> all;
    for (const auto& [name, record] : records_) all.push_back(info(*record));
    for (const auto& [name, lost] : lost_) all.push_back(info(lost));
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  });
}

std::vector<ParentInfo> Daemon::list_parents() {
  return call([&] {
    std::vector<ParentInfo> all;
    for (const auto& parent : parents_) {
      ParentInfo one{parent->name(), parent->kind(), 0, parent->detail()};
      for (const auto& [name, record] : records_)
        if (record->spec.parent == one.name) ++one.vdevices;
      all.push_back(std::move(one));
    }
    return all;
  });
}

std::vector<CounterRow> Daemon::counters() {
  return call([&] { return counter_rows(); });
}

std::vector<CounterRow> Daemon::counter_rows(const Record& record) {
  const std::string& name = record.spec.name;
  const VdeviceUse use = worker_of(record.fabric).use_of_all(name);
  auto rows = vdevice_rows({name, record.tenant}, use, quota_rows(record, use), record.foreign,
                           record.cm->endpoint().counters());
  rows.push_back({name, "addresses_ignored", record.ignored_so_far, {}, false, record.tenant});
  if (record.gsi != nullptr)
    rows.push_back({name, "cm_qp1_lost", record.gsi->lost(), {}, false, record.tenant});
  return rows;
}

std::vector<CounterRow> Daemon::counter_rows() {
  std::vector<CounterRow> rows;
  rows.push_back({"daemon", "vdevices", records_.size(), {}, true});
  rows.push_back({"daemon", "vdevices_lost", lost_.size(), {}, true});
  rows.push_back({"daemon", "store_commits", store_.commits(), {}, false});
  rows.push_back({"daemon", "gids_refused", gids_.refusals()});
  for (size_t i = 0; i < workers_.size(); ++i) {
    const auto longest =
        std::chrono::duration_cast<std::chrono::microseconds>(workers_[i]->longest_pass());
    rows.push_back({"daemon",
                    "worker_longest_pass",
                    static_cast<uint64_t>(longest.count()),
                    {"worker", std::to_string(i)},
                    true});
  }
  const CmCounters& cm = std::as_const(cm_).counters();
  rows.push_back({"daemon", "cm_sessions_opened", cm.sessions});
  rows.push_back({"daemon", "cm_sessions_malformed", cm.malformed});
  rows.push_back({"daemon", "cm_sessions_unproven", cm.unproven});
  rows.push_back({"daemon", "cm_sessions_unread", cm.unread});
  rows.push_back({"daemon", "cm_namespaces_crowded", cm.crowded});
  rows.push_back({"daemon", "cm_sessions_delayed", cm.delayed});
  TenantTotals totals = gone_;
  for (const auto& [name, record] : records_) {
    for (auto& row : counter_rows(*record)) {
      totals.add(row);
      rows.push_back(std::move(row));
    }
  }
  for (auto& row : totals.rows()) rows.push_back(std::move(row));
  return rows;
}

Result<std::vector<ConnectionRow>> Daemon::list_connections(const std::string& vdev) {
  return call([&]() -> Result<std::vector<ConnectionRow>> {
    if (!vdev.empty())
      if (auto found = find(vdev); !found) return pass(std::move(found.error()));
    return connection_rows(cm_.mux(), vdev);
  });
}

std::shared_ptr<void> Daemon::watch(WatchCallback callback) {
  return call([&]() -> std::shared_ptr<void> {
    for (const auto& [name, record] : records_)
      callback({WatchEvent::Type::kAdded, info(*record), "is there"});
    for (const auto& [name, lost] : lost_)
      callback({WatchEvent::Type::kAdded, info(lost), "is lost"});
    const uint64_t id = next_subscriber_++;
    subscribers_.emplace(id, std::move(callback));
    return std::make_shared<Subscription>(*this, id);
  });
}

}  // namespace vrdma::vrdmad
