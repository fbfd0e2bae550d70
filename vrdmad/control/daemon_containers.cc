// Containers: a hook gives them vdevices (vrdmad/hooks), and their end takes them back.
//
// The containers of a pod share a network namespace and, by default, a vdevice. The daemon finds
// the namespace by a process of a container that has not ended. A runtime may make the netdev after
// all hooks, so a vdevice may be pending.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/out_of_files.h"
#include "vrdmad/control/daemon_record.h"
#include "vrdmad/control/same_spec.h"
#include "vrdmad/hooks/person.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

std::string netns_of(const Container& container) {
  return "pid:" + std::to_string(container.init.pid);
}

// Users of a range of subordinate ones have together what so many of them may have.
constexpr uint64_t kUsersOfPerson = 16;

// The user that owns the namespace of its containers.
uid_t user_of(const VdevSpec& spec) {
  const std::string& text = label_value(spec, HookBackend::kUserLabel);
  uid_t user = 0;
  std::from_chars(text.data(), text.data() + text.size(), user);
  return user;
}

// `name` with the next number: vrdma0, vrdma1, ...
std::string next_name(const std::string& name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  unsigned number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  return name.substr(0, digits) + std::to_string(number + 1);
}

}  // namespace

VdevSpec* Daemon::spec_of(uint64_t id) {
  if (Record* const record = find(id)) return &record->spec;
  const auto lost = lost_.find(id);
  return lost != lost_.end() ? &lost->second.vdev.spec : nullptr;
}

// Removes those that have ended from `spec`.
Result<OwnerWatches> Daemon::watch_containers(uint64_t id, VdevSpec* spec) {
  OwnerWatches watches;
  if (spec->containers.empty()) return watches;
  std::string reason;
  std::vector<Container> living;
  for (const auto& container : spec->containers) {
    auto watch = outside_.processes->watch(container.init, [this, id, container] {
      // Deferred: the watch must not be destroyed inside its own callback.
      loop_.post([this, id, container] { leave(id, container, "has ended"); });
    });
    if (!watch && watch.error().code() != ESRCH) return pass(std::move(watch.error()));
    if (!watch) {
      reason = "container " + container.id + ": " + watch.error().message();
      continue;
    }
    watches[{container.id, container.init.pid}] = std::move(*watch);
    living.push_back(container);
  }
  if (living.empty()) return fail(ESTALE, reason);
  spec->containers = std::move(living);
  spec->netns = netns_of(spec->containers.front());
  return watches;
}

std::optional<uint64_t> Daemon::given_in(uint64_t cookie, const VdevSpec& wanted,
                                         const Container* container) const {
  const auto is_same = [&](const VdevSpec& spec, const char* label) {
    return label_value(spec, label) == label_value(wanted, label);
  };
  for (const uint64_t id : directory_.in_netns(cookie)) {
    const auto record = records_.find(id);
    const VdevSpec& spec = record != records_.end() ? record->second->spec : lost_.at(id).vdev.spec;
    // Those of other pods are in the same namespace where a class permits the host's network.
    if (spec.containers.empty() || !is_same(spec, kClassLabel) || !is_same(spec, kClaimLabel) ||
        !is_same(spec, kShareLabel) || spec.tenant != wanted.tenant || spec.fabric != wanted.fabric)
      continue;
    if (container == nullptr || std::find(spec.containers.begin(), spec.containers.end(),
                                          *container) != spec.containers.end())
      return id;
  }
  return {};
}

Result<Daemon::Begun> Daemon::join(uint64_t id, const Container& container, bool network_admin) {
  Record* const record = find(id);
  VdevSpec& spec = *spec_of(id);
  if (record != nullptr ? record->leaving : lost_.at(id).leaving)
    return fail(EAGAIN,
                "vdevice " + label_of(spec.netns, spec.name) + " is being deleted: try again");
  auto& watches = record != nullptr ? record->containers : lost_.at(id).containers;
  Begun begun{id, record != nullptr ? info(*record) : info(lost_.at(id)), {}, true};
  if (std::find(spec.containers.begin(), spec.containers.end(), container) != spec.containers.end())
    return begun;
  VdevSpec joined;
  joined.containers = {container};
  auto watch = watch_containers(id, &joined);
  if (!watch) return pass(std::move(watch.error()));
  watches.merge(*watch);
  spec.containers.push_back(container);
  if (network_admin) spec.labels[kNetworkAdminLabel] = "yes";
  directory_.set_containers(id, container_ids(spec));
  begun.existed = false;
  begun.on_disk = record != nullptr ? store(*record).share()
                                    : outside_.writer->write(lost_.at(id).vdev).share();
  return begun;
}

bool Daemon::is_joined(uint64_t id, const VdevSpec& spec) {
  const VdevSpec* const now = spec_of(id);
  return now != nullptr &&
         std::any_of(now->containers.begin(), now->containers.end(),
                     [&](const auto& one) { return one != spec.containers.front(); });
}

Result<void> Daemon::check_most(const VdevSpec& spec, const Terms& terms) const {
  if (terms.owner == 0) return {};
  uint64_t has = 0, person_has = 0;
  const auto count = [&](const VdevSpec& other) {
    if (label_value(other, kClassLabel) != spec.labels.at(kClassLabel)) return;
    const uid_t user = user_of(other);
    if (user == terms.owner) has += other.containers.size();
    if (user != 0 && person_of(user) == person_of(terms.owner))
      person_has += other.containers.size();
  };
  for (const auto& [id, record] : records_) count(record->spec);
  for (const auto& [id, lost] : lost_) count(lost.vdev.spec);
  if (has < terms.most && person_has / kUsersOfPerson >= terms.most)
    return fail(EDQUOT, "users " + std::to_string(person_of(terms.owner)) + " to " +
                            std::to_string(person_of(terms.owner) + kUsersOfRange - 1) +
                            ", which may be of one person, have " + std::to_string(person_has) +
                            " containers with vdevices of class '" + spec.labels.at(kClassLabel) +
                            "': end some, or raise `most` in classes.conf");
  if (has < terms.most) return {};
  return fail(EDQUOT, "user " + std::to_string(terms.owner) + " has " + std::to_string(has) +
                          " containers with vdevices of class '" + spec.labels.at(kClassLabel) +
                          "', which allows " + std::to_string(terms.most) +
                          ": end some, or raise `most` in classes.conf");
}

Result<void> Daemon::check_lowered(const VdevSpec& spec, const Terms& terms) {
  const std::string tenant = tenant_of(spec, 0);
  for (const auto& setting : spec.quota) {
    const auto kind = provisioning::find_kind(setting.kind);
    if (!kind || !terms.lowered.contains(setting.kind)) continue;
    const uint64_t most = budgets_.initial(tenant, spec.parent, *kind);
    if (setting.limit > most)
      return fail(EPERM, "annotation vrdma.io/quota: its tenant and parent give at most " +
                             setting.kind + "=" + std::to_string(most) +
                             ": ask for less, or set max_quota in classes.conf");
  }
  return {};
}

// The file is read on the caller's thread, because the users in it may come from another host.
Result<std::vector<ClassInfo>> Daemon::list_classes() {
  const auto classes = classes_->read();
  if (!classes) return pass(classes.error());
  std::map<std::string, ClassInfo> all;
  for (const auto& [name, error] : classes->wrong()) {
    all[name].name = name;
    all[name].error = error.message();
  }
  call([&] {
    for (const auto& [name, its] : classes->all()) {
      all[name].name = name;
      describe(its, &all[name]);
    }
    const auto given = given_by_class();
    for (auto& [name, info] : all)
      if (const auto its = given.find(name); its != given.end()) info.given = its->second;
    return true;
  });
  std::vector<ClassInfo> list;
  for (auto& [name, its] : all) list.push_back(std::move(its));
  return list;
}

std::map<std::string, uint32_t> Daemon::given_by_class() const {
  std::map<std::string, uint32_t> given;
  const auto count = [&given](const VdevSpec& spec) {
    if (!spec.containers.empty()) ++given[label_value(spec, kClassLabel)];
  };
  for (const auto& [id, record] : records_) count(record->spec);
  for (const auto& [id, lost] : lost_) count(lost.vdev.spec);
  return given;
}

void Daemon::describe(const api::Class& its, ClassInfo* info) {
  info->parent = its.parent;
  info->devices = its.devices;
  for (const auto& setting : its.quota) info->quota.push_back({setting.kind, setting.limit});
  for (const auto& setting : its.max_quota)
    info->max_quota.push_back({setting.kind, setting.limit});
  info->reach = its.reach;
  const Parent* const parent = find_parent(its.parent);
  if (parent == nullptr) {
    info->error =
        classes_->path() + ": class '" + its.name + "': there is no parent '" + its.parent + "'";
    return;
  }
  info->parent_state = parent->state();
  info->numa_node = parent->numa_node();
  // Of a tenant that depends on the container, only the parent's ceilings are known.
  const bool named = its.tenant_rule == api::Class::Rule::kNamed;
  if (const auto room = budgets_.room(named ? its.tenant : "", its.parent, its.quota))
    info->free = static_cast<uint32_t>(std::min<uint64_t>(*room, UINT32_MAX));
}

Result<void> Daemon::ensure_fabric(const VdevSpec& spec, const Terms& terms) {
  if (!terms.reach) return {};
  FabricChange change{fabric_of(spec, 0)};
  const FabricSpec now = call([&] { return settings_of(change.name); });
  if (*terms.reach == Reach::kHost) {
    if (now.reach == Reach::kHost) return {};
    return fail(EPERM, "fabric " + now.name + " reaches the network, and class '" +
                           spec.labels.at(kClassLabel) +
                           "' is for this host: set the fabric's reach with `vrdmactl fabric "
                           "set`, or the class's in classes.conf");
  }
  if (now.reach == Reach::kHost || *terms.reach == Reach::kWire) change.reach = terms.reach;
  change.peers = terms.peers;
  if (change.reach.value_or(now.reach) == now.reach &&
      change.peers.value_or(now.peers) == now.peers)
    return {};
  auto set = set_fabric(change);
  return set ? Result<void>() : pass(std::move(set.error()));
}

Result<HookBackend::Given> Daemon::give(const VdevSpec& wanted, const netns::Netns& netns,
                                        const Terms& terms) {
  auto spec = canonical(wanted);
  if (!spec) return pass(std::move(spec.error()));
  Container& container = spec->containers.front();
  container.init.boot_id = boot_id_;
  if (auto done = ensure_fabric(*spec, terms); !done) return pass(std::move(done.error()));
  if (auto may = call([&]() -> Result<void> {
        return given_in(netns.cookie, *spec, &container) ? Result<void>()
                                                         : check_most(*spec, terms);
      });
      !may)
    return pass(std::move(may.error()));
  // Not on the control thread, nor for a user that has all it may: the kernel may need long for it.
  auto netdev =
      netdev_for(*outside_.processes, static_cast<pid_t>(container.init.pid), spec->netdev);
  if (!netdev && base::out_of_files(netdev.error().code())) return pass(std::move(netdev.error()));
  if (netdev) spec->netdev = *netdev;
  std::vector<Lost> replaced;
  bool joined = false;
  auto begun = call([&]() -> Result<Begun> {
    if (terms.claim && !claims_.contains(*terms.claim))
      return fail(EAGAIN, "claim '" + terms.claim->uid +
                              "' was changed meanwhile: start the container again");
    if (terms.claim)
      if (auto its = claims_.find(terms.claim->uid); !its) return pass(std::move(its.error()));
    // A hook asks again when the daemon was restarted before it answered.
    const Container* const only = terms.shared ? nullptr : &container;
    if (const auto its = given_in(netns.cookie, *spec, only)) {
      joined = true;
      const auto& has = spec_of(*its)->containers;
      if (std::find(has.begin(), has.end(), container) == has.end())
        if (auto may = check_most(*spec, terms); !may) return pass(std::move(may.error()));
      return join(*its, container, !label_value(*spec, kNetworkAdminLabel).empty());
    }
    if (auto may = check_most(*spec, terms); !may) return pass(std::move(may.error()));
    if (auto may = check_lowered(*spec, terms); !may) return pass(std::move(may.error()));
    while (directory_.at(netns.cookie, spec->name)) spec->name = next_name(spec->name);
    return begin(*spec, netns, &replaced, netdev ? "" : netdev.error().message());
  });
  if (!begun) return pass(std::move(begun.error()));
  if (!joined) {
    if (auto made = finish(*begun, *spec, std::move(replaced)); !made)
      return pass(std::move(made.error()));
  } else if (!begun->existed) {
    if (const Result<void> stored = wait_for(begun->on_disk); !stored) {
      take_back(begun->id, container);
      return pass(stored.error());
    }
  }
  return call([&]() -> Result<Given> {
    if (spec_of(begun->id) == nullptr)
      return fail(ESRCH, "container " + container.id + " has ended");
    if (Record* const record = find(begun->id)) show_sysfs(*record);
    if (terms.owner != 0)
      if (auto may = run_dir_.let_read(netns.cookie, terms.owner); !may)
        spdlog::warn("container {}: {}", container.id, may.error().message());
    const std::string& name = begun->info.name;
    return Given{begun->id, name, run_dir_.sysfs_dir(netns.cookie) + "/" + name,
                 run_dir_.netns_dir(netns.cookie), !begun->existed};
  });
}

void Daemon::take_back(uint64_t vdevice, const Container& container) {
  loop_.post([this, vdevice, container = Container(container)]() mutable {
    container.init.boot_id = boot_id_;
    leave(vdevice, container, "was not set up");
  });
}

// The last one takes the vdevice with it.
void Daemon::leave(uint64_t id, const Container& container, const std::string& reason) {
  VdevSpec* const spec = spec_of(id);
  if (spec == nullptr) return;  // deleted in the meantime
  Record* const record = find(id);
  auto& watches = record != nullptr ? record->containers : lost_.at(id).containers;
  if (std::erase(spec->containers, container) == 0) return;
  watches.erase({container.id, container.init.pid});
  const std::string what = "its container " + container.id + " " + reason;
  if (spec->containers.empty()) return end_by_itself(id, what);
  spec->netns = netns_of(spec->containers.front());
  spdlog::info("vdevice {}: {}", label_of(spec->netns, spec->name), what);
  directory_.set_containers(id, container_ids(*spec));
  if (record == nullptr) {
    store_again(lost_.at(id));
    return;
  }
  record->label = label_of(spec->netns, spec->name);
  enter_names(*record);
  store_again(*record);
  tell(WatchEvent::Type::kChanged, info(*record), what);
}

Result<std::string> Daemon::netdev_for(const Processes& processes, pid_t pid,
                                       const std::string& wanted) {
  auto routed = processes.netdevs(pid);
  if (!routed) return pass(std::move(routed.error()));
  return routed->choose(wanted);
}

Result<Daemon::Lost*> Daemon::make_pending(uint64_t id, const VdevSpec& spec,
                                           const netns::Netns& netns, const std::string& reason) {
  VdevSpec living = spec;
  if (auto watches = watch_containers(id, &living); !watches)
    return pass(std::move(watches.error()));
  if (auto directory = run_dir_.make_netns_dir(netns.cookie); !directory)
    return pass(std::move(directory.error()));
  StoredVdev vdev;
  vdev.id = id;
  vdev.spec = living;
  vdev.asked = spec.quota;
  vdev.node_guid = gid::make_node_guid();
  vdev.boot_id = boot_id_;
  vdev.netns_cookie = netns.cookie;
  vdev.number = free_number(netns.cookie, 0);
  Lost& pending = enter(std::move(vdev), reason);
  look_for_netdev(pending);  // the netdev may have come just before
  return &pending;
}

// A program that can exchange netdevs could return with a neighbour's address. So could one of
// another container of the pod, of which the daemon knows nothing.
bool Daemon::may_exchange_netdevs(const VdevSpec& spec) {
  return !label_value(spec, kNetworkAdminLabel).empty() || !label_value(spec, kPodLabel).empty();
}

// A netdev of another name may be in another network, so the vdevice waits for the same name.
Daemon::Lost& Daemon::enter_without_netdev(StoredVdev vdev, const std::string& reason) {
  vdev.ifindex = 0;
  vdev.gids.clear();
  if (!may_exchange_netdevs(vdev.spec)) vdev.first_addresses.clear();
  Lost& lost = enter(std::move(vdev), reason);
  lost.had_netdev = true;
  store_again(lost);
  look_for_netdev(lost);
  return lost;
}

// A container outlives its netdev, for example between `podman network disconnect` and `connect`.
void Daemon::await_another_netdev(Record& record, const std::string& reason) {
  spdlog::info("vdevice {}: {}, so it waits for another '{}'", record.label, reason,
               record.spec.netdev);
  note("lost", record.id, record.spec, reason);
  end_in_worker(record, [this, id = record.id, reason] {
    Record* const its = find(id);
    if (its == nullptr || its->leaving) return;  // it is deleted meanwhile
    StoredVdev waits = stored_form(*its);
    const auto directory = its->netns_dir;  // which containers mount, as they do the files
    auto files = std::move(its->sysfs);
    take_out(id);
    const Lost& lost = enter_without_netdev(std::move(waits), reason);
    hand_over(std::move(files), lost.sysfs.get());
    tell(WatchEvent::Type::kChanged, info(lost), reason);
  });
}

void Daemon::await_netdev(Lost& lost, const netns::Netns& netns) {
  const StoredVdev& vdev = lost.vdev;
  SysfsView view;
  view.name = vdev.spec.name;
  view.node_guid = vdev.node_guid.text();
  view.firmware = "vrdma-" VRDMA_VERSION;
  if (auto shown = lost.sysfs->show(view); !shown)
    spdlog::warn("vdevice {}: cannot make its sysfs files: {}",
                 label_of(vdev.spec.netns, vdev.spec.name), shown.error().message());
  (void)lost.sysfs->counters();  // closes them
  auto watch = outside_.links->watch_netns(netns, [this, id = vdev.id] {
    if (const auto its = lost_.find(id); its != lost_.end()) look_for_netdev(its->second);
  });
  if (watch) lost.netns_watch = std::move(*watch);
  // Without the watch, the next retry finds the netdev.
  if (!retry_.active()) retry_later();
}

void Daemon::look_for_netdev(const Lost& lost) {
  const VdevSpec& spec = lost.vdev.spec;
  netdev_search_.want(lost.vdev.id, static_cast<pid_t>(spec.containers.front().init.pid),
                      spec.netdev);
}

void Daemon::on_netdev(uint64_t id, const Result<std::string>& netdev) {
  const auto its = lost_.find(id);
  if (its == lost_.end() || !its->second.vdev.pending()) return;
  if (netdev) return restore_lost(id, *netdev);
  if (netdev.error().code() != ESRCH) {
    its->second.reason = netdev.error().message();
    return;
  }
  restore_lost(id);  // finds out whether another of its containers lives
  if (const auto still = lost_.find(id); still != lost_.end()) look_for_netdev(still->second);
}

}  // namespace vrdma::vrdmad
