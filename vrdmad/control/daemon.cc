#include "vrdmad/control/daemon.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <utility>

#include "core/base/name.h"
#include "core/base/option_check.h"
#include "core/base/printable.h"
#include "core/verbs/mtu.h"
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

// Of one vdevice, that are logged: its tenant may have the right to make any number of them.
constexpr uint64_t kChangesPerSecond = 1, kChangesAtOnce = 10, kRefusalsAtOnce = 16;

// In the order of `had`.
std::vector<verbs::Gid> still_there(const std::vector<verbs::Gid>& had,
                                    const std::vector<verbs::Gid>& gids) {
  std::vector<verbs::Gid> result;
  for (const auto& gid : had)
    if (std::find(gids.begin(), gids.end(), gid) != gids.end()) result.push_back(gid);
  return result;
}

}  // namespace

Result<void> check_name(const std::string& what, const std::string& name) {
  if (base::is_name(name)) return {};
  return fail(EINVAL, what + " " + base::in_quotes(name) + " " + std::string(base::kNameRule));
}

Result<void> check_group(const std::string& what, const std::string& name) {
  if (base::is_group_name(name)) return {};
  return check_name(what, name);
}

// check_group() rejects "vdev/" and "tenant/", so no operator can give such a name to another
// vdevice, and two vdevices without a tenant never share a tenant or fabric.
std::string tenant_of(const VdevSpec& spec, uint64_t id) {
  return spec.tenant.empty() ? "vdev/" + std::to_string(id) : spec.tenant;
}

std::string fabric_of(const VdevSpec& spec, uint64_t id) {
  if (!spec.fabric.empty()) return spec.fabric;
  return spec.tenant.empty() ? tenant_of(spec, id) : "tenant/" + spec.tenant;
}

std::string label_value(const VdevSpec& spec, const std::string& key) {
  const auto found = spec.labels.find(key);
  return found != spec.labels.end() ? found->second : std::string();
}

std::vector<std::string> container_ids(const VdevSpec& spec) {
  std::vector<std::string> ids;
  for (const auto& container : spec.containers) ids.push_back(container.id);
  const std::string label = label_value(spec, "container");
  if (ids.empty() && !label.empty()) ids.push_back(label);
  return ids;
}

Directory::Entry entry_of(const VdevSpec& spec, uint64_t cookie, uint32_t number,
                          const std::string& fabric, const std::string& tenant) {
  Directory::Entry entry{spec.name, spec.netns, cookie, number,
                         fabric,    tenant,     {},     container_ids(spec)};
  const std::string space = label_value(spec, HookBackend::kNamespaceLabel),
                    pod = label_value(spec, HookBackend::kPodNameLabel);
  if (!space.empty() && !pod.empty()) entry.pod = space + "/" + pod;
  return entry;
}

std::vector<QuotaRow> to_rows(const std::vector<provisioning::Row>& rows) {
  std::vector<QuotaRow> result;
  for (const auto& row : rows) {
    const auto& traits = provisioning::traits(row.kind);
    // A rate at the ceiling is unlimited.
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

Daemon::Daemon(base::EventLoop& loop, const RunDir& run_dir, Store& store,
               const SessionSettings& settings, const WorkerOptions& options, Outside outside,
               std::shared_ptr<api::ClassFile> classes)
    : loop_(loop),
      run_dir_(run_dir),
      store_(store),
      settings_(settings),
      options_(options),
      outside_(std::move(outside)),
      events_(loop, options.events),
      classes_(std::move(classes)),
      directory_([this](const std::string& text) -> std::optional<uint64_t> {
        const auto netns = settings_.broker->netns(text);
        if (!netns) return {};
        return netns->cookie;
      }),
      boot_id_(outside_.processes->boot_id()),
      used_tokens_(run_dir.restored()),
      netdev_search_(
          loop, *outside_.aside,
          [&processes = *outside_.processes](pid_t pid, const std::string& wanted) {
            return netdev_for(processes, pid, wanted);
          },
          [this](uint64_t id, const auto& netdev) { on_netdev(id, netdev); }) {}

Result<std::unique_ptr<Daemon>> Daemon::start(base::EventLoop& loop, const RunDir& run_dir,
                                              Store& store, const SessionSettings& settings,
                                              const WorkerOptions& options, Outside outside,
                                              std::shared_ptr<api::ClassFile> classes) {
  std::unique_ptr<Daemon> daemon(
      new Daemon(loop, run_dir, store, settings, options, std::move(outside), std::move(classes)));
  auto sessions = daemon->find_sessions();
  auto leases = ReadLeases::start(loop);
  if (!leases) return pass(std::move(leases.error()));
  daemon->read_leases_ = std::move(*leases);
  if (!provisioning::has_rdma_controller())
    spdlog::info("the kernel has no rdma cgroup controller: only the limits of vrdmad apply");
  if (auto restored = daemon->restore_all(); !restored) return pass(std::move(restored.error()));
  daemon->adopt(std::move(sessions));
  return daemon;
}

Daemon::~Daemon() {
  leaves_ = true;
  cm_.leave_sessions();
  workers_.leave();
  furnisher_.leave([this](uint64_t vdevice) { return records_.contains(vdevice); });
  for (const auto& [id, record] : records_)
    if (record->sysfs != nullptr) record->sysfs->leave();  // programs have it mounted
  for (const auto& [id, lost] : lost_)
    if (lost.sysfs != nullptr) lost.sysfs->leave();
  records_.clear();
}

// The directories of a namespace, which exist: removed with the last vdevice that holds them,
// unless the daemon ends. Lost vdevices hold them too, because containers have them mounted.
std::shared_ptr<void> Daemon::hold_netns_dir(uint64_t cookie) {
  std::erase_if(netns_dirs_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<void> held = netns_dirs_[cookie].lock();
  if (held != nullptr) return held;
  // Not the null pointer, which lock() would take for an expired one.
  held = std::shared_ptr<void>(this, [this, cookie](void*) {
    if (!leaves_) run_dir_.remove_netns_dir(cookie);
  });
  netns_dirs_[cookie] = held;
  return held;
}

Parent* Daemon::find_parent(const std::string& name) const {
  const auto found = std::find_if(outside_.parents.begin(), outside_.parents.end(),
                                  [&](const auto& one) { return one->name() == name; });
  return found != outside_.parents.end() ? found->get() : nullptr;
}

Result<Daemon::Record*> Daemon::find(const std::string& reference) {
  const auto id = directory_.find(reference);
  if (!id) return pass(id.error());
  if (Record* const record = find(*id)) return record;
  return fail(ENODEV, "vdevice '" + reference + "' is lost: " + lost_.at(*id).reason);
}

Daemon::Record* Daemon::find(uint64_t id) {
  const auto it = records_.find(id);
  return it != records_.end() ? it->second.get() : nullptr;
}

void Daemon::enter_names(const Record& record) {
  directory_.add(record.id, entry_of(record.spec, record.link.netns_cookie, record.number,
                                     record.fabric, record.tenant));
}

Daemon::Record& Daemon::enter(std::unique_ptr<Record> record) {
  Record& entered = *record;
  enter_names(entered);
  records_.emplace(entered.id, std::move(record));
  return entered;
}

// Reserves ids on disk long before they are used.
uint64_t Daemon::new_id() {
  if (next_id_ + kIdsAtOnce / 2 > reserved_ids_) {
    reserved_ids_ += kIdsAtOnce;
    outside_.writer->write_later(Store::Reserved{reserved_ids_});
  }
  return next_id_++;
}

// `wanted`, or the next number that is free in the namespace. A lost vdevice keeps its number.
uint32_t Daemon::free_number(uint64_t cookie, uint32_t wanted) const {
  const auto& taken = directory_.numbers(cookie);
  while (taken.contains(wanted)) ++wanted;
  return wanted;
}

Result<std::unique_ptr<Daemon::Record>> Daemon::make(uint64_t id, const VdevSpec& spec,
                                                     const netns::Netns& netns,
                                                     const StoredVdev* stored) {
  auto record = std::make_unique<Record>();
  record->id = id;
  record->label = label_of(spec.netns, spec.name);
  record->spec = spec;
  record->asked = stored != nullptr ? stored->asked : spec.quota;
  const StoredVdev* const placed = stored != nullptr && !stored->pending() ? stored : nullptr;
  if (!spec.tenant.empty())
    if (auto ok = check_group("the tenant", spec.tenant); !ok) return pass(std::move(ok.error()));
  const std::string tenant = record->tenant = tenant_of(spec, id);
  record->fabric = fabric_of(spec, id);
  if (!spec.fabric.empty())
    if (auto ok = check_group("the fabric", spec.fabric); !ok) return pass(std::move(ok.error()));
  record->settings = settings_of(record->fabric);
  Parent* const parent = find_parent(spec.parent);
  if (parent == nullptr)
    return fail(ENODEV, "there is no parent '" + spec.parent + "': see `vrdmactl parent list`");

  auto allotment = budgets_.allot(tenant, spec.parent, to_settings(spec.quota));
  if (!allotment) return pass(std::move(allotment.error()));
  record->allotment = std::move(*allotment);

  for (const auto& text : spec.addresses) {
    auto prefix = gid::Prefix::parse(text);
    if (!prefix) return pass(std::move(prefix.error()));
    record->prefixes.push_back(*prefix);
  }
  const auto layout = gid::parse_layout(spec.gid_layout);
  if (!layout) return pass(layout.error());
  record->layout = *layout;
  record->spec.gid_layout = gid::text_of(*layout);

  auto permissions = provisioning::Permissions::of(spec.allow);
  if (!permissions) return pass(std::move(permissions.error()));

  if (spec.owner.pid != 0) {
    auto owner = outside_.processes->watch(spec.owner, [this, id] { on_owner_ended(id); });
    record->owner_ended = !owner && owner.error().code() == ESRCH;
    if (record->owner_ended && spec.end_with_owner && stored != nullptr)
      return fail(ESTALE, "its owner: " + owner.error().message());
    if (!owner && (stored == nullptr || !record->owner_ended))
      return pass(std::move(owner.error()), "the owner");
    if (owner) record->owner = std::move(*owner);
  }

  auto containers = watch_containers(id, &record->spec);
  if (!containers) return pass(std::move(containers.error()));
  record->containers = std::move(*containers);

  const std::string& name = spec.name;
  const std::string& label = record->label;
  netns::LinkObserver observer = {
      [this, id](const netns::Link& link) { on_link_changed(id, link); },
      [this, id](netns::Gone gone) { on_link_gone(id, gone); }};
  // Within one boot it must be the same netdev, even if it has been renamed.
  const bool very_one = placed != nullptr && placed->boot_id == boot_id_;
  auto watch = very_one ? outside_.links->watch_link(netns, placed->ifindex, std::move(observer))
                        : outside_.links->watch_link(netns, spec.netdev, std::move(observer));
  if (!watch && very_one && watch.error().code() == ENODEV)
    return fail(kNetdevGone, "netns '" + spec.netns + "': the netdev '" + spec.netdev +
                                 "' that it was created on does not exist");
  if (!watch) return pass(std::move(watch.error()), "netns '" + spec.netns + "'");
  record->watch = std::move(*watch);
  record->link = record->watch.link();
  record->spec.netdev = record->link.name;
  if (stored != nullptr) record->stored = *stored;

  auto share = parent->open(record->link, record->allotment.limits());
  if (!share) return pass(std::move(share.error()), "parent '" + spec.parent + "'");
  record->share = std::move(*share);
  record->allotment.bound(record->share.limits);
  record->spec.quota.clear();  // replaced by all limits, with the defaults of today
  for (const auto& setting : record->allotment.settings())
    record->spec.quota.push_back({setting.kind, setting.limit});
  auto page = base::SharedPage<VdevicePage>::make("vrdma-vdevice");
  if (!page) return pass(std::move(page.error()));
  record->page = std::move(*page);
  show_limits(*record);
  provisioning::Ledger cm_ledger;
  if (auto ok = cm_ledger.set_limits(record->allotment.settings()); !ok)
    return pass(std::move(ok.error()));
  for (const auto& pool : record->allotment.pools()) cm_ledger.draw_from(pool);

  auto directory = run_dir_.make_netns_dir(netns.cookie);
  if (!directory) return pass(std::move(directory.error()));
  record->netns_dir = hold_netns_dir(netns.cookie);
  record->number = free_number(netns.cookie, stored != nullptr ? stored->number : 0);

  const std::vector<verbs::Gid> had = placed != nullptr ? placed->gids : std::vector<verbs::Gid>();
  // One that lost its netdev may be bound to what it had there.
  const bool bound = placed != nullptr || (stored != nullptr && !stored->first_addresses.empty());
  record->first_addresses = bound ? stored->first_addresses : all_gids(record->link);
  const auto gids = gid::derive_gids(interface_of(*record), had, room_of(*record)).gids;
  if (placed == nullptr && record->reaches_network())
    if (auto ok = check_network(*record, gids); !ok) return pass(std::move(ok.error()));
  auto holding =
      gids_.claim(record->fabric, label, placed != nullptr ? std::vector<verbs::Gid>() : gids,
                  [this, id] { loop_.post([this, id] { apply_again(id, kAddressFree); }); });
  if (!holding) return pass(std::move(holding.error()));
  record->gids = std::move(*holding);
  record->node_guid = stored != nullptr ? stored->node_guid : gid::make_node_guid();

  auto qp_numbers = base::SharedPage<rdma::QpNumberTable>::make("vrdma-qp-numbers");
  if (!qp_numbers) return pass(std::move(qp_numbers.error()));
  record->qp_numbers = std::move(*qp_numbers);
  record->permissions = *permissions;
  if (permissions->has(provisioning::Permission::kQp1))
    record->gsi = std::make_shared<GsiRelay>(loop_, label, record->page.get(), [this, id] {
      if (Record* const found = find(id)) join_for_cm(*found, true);
    });
  record->intake = std::make_shared<Intake::Account>(
      settings_.intake, part(record->page.get(), &VdevicePage::intake_unfinished));
  auto fabric_counters = counters_of(record->fabric);
  if (!fabric_counters) return pass(std::move(fabric_counters.error()));
  record->fabric_counters = std::move(*fabric_counters);
  record->domain = domain_of(*record);
  give_to_worker(*record);
  record->in_worker = std::shared_ptr<void>(nullptr, [this, id, domain = record->domain](void*) {
    if (WorkerEnd* const worker = workers_.find(domain)) worker->send(RemoveVdevice{id, 0});
  });
  auto cm =
      cm_.attach({id, name, tenant, record->fabric, netns.cookie, record->node_guid.big_endian(),
                  rdma::QpNumberReader(record->qp_numbers.get()), std::move(cm_ledger), record->gsi,
                  static_cast<uint8_t>(record->share.capabilities.ack_delay), record->number});
  if (!cm) return pass(std::move(cm.error()));
  record->cm = std::move(*cm);
  record->cm->set_island(record->island());
  if (placed != nullptr)  // a GID that it did not have may belong to a vdevice restored later
    apply(*record, still_there(had, gids));
  else
    apply(*record);

  set_entrance(*record);
  auto socket = SessionSocket::listen(
      *settings_.broker, loop_, *directory + "/" + std::to_string(record->number) + ".sock",
      netns.cookie,
      {record->intake,
       record->entrance,
       [this, raw = record.get()](Arrival arrival) { accept(*raw, std::move(arrival)); },
       [this, raw = record.get()] {
         note("isolation", raw->id, raw->spec, "a connection from another network namespace");
         // Log at powers of two: a client may retry without bound.
         if (std::has_single_bit(++raw->foreign))
           spdlog::warn(
               "vdevice {}: refused a connection from another network namespace, {} so far",
               raw->label, raw->foreign);
       },
       {},
       [this, raw = record.get()] { return recipient_of_next(*raw); }});
  if (!socket) return pass(std::move(socket.error()));
  record->socket = std::move(*socket);
  auto cm_socket = cm_.socket(netns.cookie, *directory);
  if (!cm_socket) return pass(std::move(cm_socket.error()));
  record->cm_socket = std::move(*cm_socket);
  return record;
}

void Daemon::apply(Record& record) {
  record.applied_shared = is_shared(record.fabric);
  const auto derived = gid::derive_gids(interface_of(record), record.gids.gids(), room_of(record));
  count_ignored(record);
  if (derived.left_out > 0 && !std::exchange(record.crowded, true))
    spdlog::warn("vdevice {}: {} addresses of its netdev get no GID: a GID table holds {}",
                 record.label, derived.left_out, room_of(record));
  if (record.link.has_more && !std::exchange(record.many_addresses, true))
    spdlog::warn("vdevice {}: its netdev has more than {} addresses: vrdmad reads no more",
                 record.label, netns::Link::kMostAddresses);
  apply(record, derived.gids);
}

void Daemon::apply(Record& record, const std::vector<verbs::Gid>& gids) {
  const netns::Link& link = record.link;
  auto update = record.gids.update(without_conflicts(record, gids));
  for (const auto& refusal : update.refusals) warn_of_address(record, refusal.sentence);
  if (!update.change.removed.empty()) retry_conflicts(link.netns_cookie);
  show_port(record);
  record.cm->update(record.table(), verbs::roce_mtu(link.mtu));
  if (record.sysfs != nullptr) show_sysfs(record);
}

// A tenant may let an address that is refused come and go.
void Daemon::warn_of_address(Record& record, const std::string& sentence) {
  record.refusals.change(loop_.now(), kChangesPerSecond, kRefusalsAtOnce);
  if (record.refusals.take(loop_.now())) spdlog::warn("vdevice {}: {}", record.label, sentence);
}

void Daemon::apply_again(uint64_t id, const std::string& reason) {
  Record* const found = find(id);
  if (found == nullptr) return;
  apply(*found);
  store_again(*found);
  tell(WatchEvent::Type::kChanged, info(*found), reason);
}

void Daemon::on_link_changed(uint64_t id, const netns::Link& link) {
  Record* const found = find(id);
  if (found == nullptr) return;
  Record& record = *found;
  if (record.link.up && !link.up) ++record.downs;
  record.link.tentative = link.tentative;
  if (record.link == link) return retry_network(record);
  const std::string reason = netns::change_of(record.link, link);
  record.link = link;
  record.spec.netdev = link.name;
  apply(record);
  store_again(record);
  retry_network(record);
  record.changes.change(loop_.now(), kChangesPerSecond, kChangesAtOnce);
  if (record.changes.take(loop_.now())) spdlog::info("vdevice {}: {}", record.label, reason);
  tell(WatchEvent::Type::kChanged, info(record), reason);
}

void Daemon::on_link_gone(uint64_t id, netns::Gone gone) {
  // Deferred: the link's watch must not be destroyed inside its own callback.
  loop_.post([this, id, gone] {
    Record* const found = find(id);
    if (found == nullptr) return;
    const std::string reason = netns::text(gone);
    if (!found->spec.containers.empty() && gone != netns::Gone::kNetns)
      return await_another_netdev(*found, reason);
    spdlog::info("vdevice {}: {}, so it is deleted", found->label, reason);
    note("deleted", id, found->spec, reason);
    remove(id, reason);
    forget_later(id);  // otherwise it would be lost at the next start
  });
}

void Daemon::on_owner_ended(uint64_t id) {
  // Deferred: the owner's watch must not be destroyed inside its own callback.
  loop_.post([this, id] {
    Record* const found = find(id);
    const auto lost = lost_.find(id);
    if (found == nullptr && lost == lost_.end()) return;  // deleted in the meantime
    const VdevSpec& spec = found != nullptr ? found->spec : lost->second.vdev.spec;
    const std::string label = label_of(spec.netns, spec.name);
    const std::string reason =
        "its owner, process " + std::to_string(spec.owner.pid) + ", has ended";
    if (!spec.end_with_owner) {
      (found != nullptr ? found->owner : lost->second.owner) = nullptr;
      if (found != nullptr) found->owner_ended = true;
      spdlog::info("vdevice {}: {}", label, reason);
      return tell(WatchEvent::Type::kChanged, found != nullptr ? info(*found) : info(lost->second),
                  reason);
    }
    note("deleted", id, spec, reason);
    end_by_itself(id, reason);
  });
}

// Deletes a vdevice of which the owner or the last container has ended.
void Daemon::end_by_itself(uint64_t id, const std::string& reason) {
  const VdevSpec& spec = *spec_of(id);
  spdlog::info("vdevice {}: {}, so it is deleted", label_of(spec.netns, spec.name), reason);
  if (find(id) != nullptr) {
    remove(id, reason);
  } else {
    const VdevInfo last = info(take_lost(id));
    tell(WatchEvent::Type::kRemoved, last, reason);
    members_changed(last.fabric);
  }
  forget_later(id);
}

void Daemon::end_in_worker(Record& record, std::function<void()> then) {
  record.socket = nullptr;
  ask(
      record, kWorkerPatience,
      [id = record.id](uint64_t ticket) {
        return RemoveVdevice{id, ticket};
      },
      [then = std::move(then)](auto*) { then(); });
}

void Daemon::remove(uint64_t id, const std::string& reason, std::function<void()> then) {
  Record& record = *records_.at(id);
  record.leaving = true;
  end_in_worker(record, [this, id, reason, last = info(record), then = std::move(then)] {
    if (find(id) != nullptr) {
      take_out(id);
      tell(WatchEvent::Type::kRemoved, last, reason);
    }
    then();
  });
}

void Daemon::take_out(uint64_t id) {
  for (const auto& row : counter_rows(*find(id)))  // which do not change any more
    if (!row.gauge) gone_.add(row);
  std::unique_ptr<Record> gone = std::move(records_.extract(id).mapped());
  directory_.remove(id);
  gone->owner = nullptr;
  gone->containers.clear();
  gone->counter_files = nullptr;
  gone->socket = nullptr;
  gone->cm_socket = nullptr;
  gone->cm = nullptr;
  gone->in_worker = nullptr;
  gone->watch = {};
  members_changed(gone->fabric);
  retry_conflicts(gone->link.netns_cookie);
  gone.reset();
  budgets_.drop_unused();
}

// Not when a tenant's last vdevice is deleted, because the next may follow at once.
void Daemon::forget_tenants() {
  std::set<std::string> known;
  for (const auto& [name, budget] : budgets_.list(Budgets::Scope::kTenant)) known.insert(name);
  for (const auto& [id, lost] : lost_) known.insert(tenant_of(lost.vdev.spec, id));
  gone_.keep(known);
}

}  // namespace vrdma::vrdmad
