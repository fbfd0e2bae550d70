// Restores vdevices and takes over sessions at the start; stores vdevices; retries lost ones.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/base/random.h"
#include "netns/netns.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

// Of a pending vdevice, until the daemon looks at its namespace.
constexpr const char* kWaits = "it waits for a netdev with an address";
constexpr auto kPatienceOfCm = std::chrono::seconds(1);  // with workers that take sessions over

// The namespace of a process; after a reboot the pid has no meaning.
bool is_of_process(const std::string& netns) {
  return netns.rfind("pid:", 0) == 0 || netns.rfind("/proc/", 0) == 0;
}

}  // namespace

// Finds the namespace of a vdevice by the name that it was created with. Within one boot it must be
// the same namespace. ESTALE: it has ended, or can never be found again.
Result<netns::Netns> Daemon::locate(const StoredVdev& stored) {
  const std::string& spec = stored.spec.netns;
  const bool same_boot = stored.boot_id == boot_id_;
  if (!same_boot && is_of_process(spec))
    return fail(ESTALE, "'" + spec + "' was a process before the last boot");
  auto named = settings_.broker->netns(spec);
  if (named && same_boot && named->cookie != stored.netns_cookie)
    return fail(ESTALE, "netns '" + spec + "' is not the one that it was created in");
  if (!named && is_of_process(spec) &&
      (named.error().code() == ESRCH || named.error().code() == ENOENT))
    return fail(ESTALE, named.error().message());
  return named;
}

// ESTALE: the vdevice must be deleted.
Result<std::unique_ptr<Daemon::Record>> Daemon::make_again(const StoredVdev& stored,
                                                           const std::string& netdev) {
  const VdevSpec& spec = stored.spec;
  if (spec.end_with_owner)
    if (auto owner = outside_.processes->watch(spec.owner, [] {});
        !owner && owner.error().code() == ESRCH)
      return fail(ESTALE, "its owner: " + owner.error().message());
  // Its namespace is found by a container that has not ended.
  StoredVdev now = stored;
  if (auto living = watch_containers(now.id, &now.spec); !living)
    return pass(std::move(living.error()));
  if (now.pending() && netdev.empty()) return fail(ENODEV, kWaits);
  auto netns = locate(now);
  if (!netns) return pass(std::move(netns.error()));
  if (const auto other = directory_.at(netns->cookie, spec.name))
    return fail(EEXIST, "there is another vdevice '" + spec.name +
                            "' in its namespace (id:" + std::to_string(*other) + ")");
  if (now.pending()) now.spec.netdev = netdev;
  return make(now.id, now.spec, *netns, &now);
}

void Daemon::enter_names(const StoredVdev& vdev) {
  directory_.add(vdev.id, entry_of(vdev.spec, vdev.boot_id == boot_id_ ? vdev.netns_cookie : 0,
                                   vdev.number, fabric_of(vdev), tenant_of(vdev.spec, vdev.id)));
}

Daemon::Lost& Daemon::enter(StoredVdev vdev, const std::string& reason) {
  const uint64_t id = vdev.id;
  const bool same_boot = vdev.boot_id == boot_id_;
  enter_names(vdev);
  Lost& lost = lost_.insert_or_assign(id, Lost()).first->second;
  lost.vdev = std::move(vdev);
  lost.reason = reason;
  if (same_boot) {
    lost.netns_dir = hold_netns_dir(lost.vdev.netns_cookie);
    // That of an earlier daemon, if it has made one.
    lost.sysfs = std::make_unique<SysfsTree>(run_dir_.sysfs_dir(lost.vdev.netns_cookie) + "/" +
                                             lost.vdev.spec.name);
    lost.sysfs->take_over();
  }
  if (auto containers = watch_containers(id, &lost.vdev.spec))
    lost.containers = std::move(*containers);
  if (lost.vdev.pending() && same_boot)
    if (const auto netns = locate(lost.vdev)) await_netdev(lost, *netns);
  if (lost.vdev.spec.owner.pid == 0) return lost;
  // Without the watch, the next retry notices the owner's end.
  if (auto owner =
          outside_.processes->watch(lost.vdev.spec.owner, [this, id] { on_owner_ended(id); }))
    lost.owner = std::move(*owner);
  return lost;
}

// A container's may get another netdev.
Daemon::Lost& Daemon::enter_again(StoredVdev vdev, const base::Error& why) {
  if (why.code() == kNetdevGone && !vdev.spec.containers.empty())
    return enter_without_netdev(std::move(vdev), why.message());
  return enter(std::move(vdev), why.message());
}

Daemon::Lost Daemon::take_lost(uint64_t id) {
  directory_.remove(id);
  return std::move(lost_.extract(id).mapped());
}

Result<void> Daemon::restore_all() {
  if (auto restored = restore_budgets(); !restored) return restored;
  if (auto restored = restore_fabrics(); !restored) return restored;
  if (auto restored = restore_claims(); !restored) return restored;
  auto all = store_.vdevs();
  if (!all) return pass(std::move(all.error()));
  const auto ids = store_.reserve_ids(kIdsAtOnce);
  if (!ids) return pass(ids.error());
  next_id_ = ids->first;
  reserved_ids_ = ids->first + ids->count - 1;
  for (auto& stored : *all) {
    const std::string label = label_of(stored.spec.netns, stored.spec.name);
    const Joining joining{fabric_of(stored), tenant_of(stored.spec, stored.id)};
    joining_ = &joining;
    // A pending vdevice has no GIDs yet, so it is completed when all others have theirs.
    auto record = stored.pending() ? fail(ENODEV, kWaits) : make_again(stored, "");
    joining_ = nullptr;
    if (!record && stored.pending()) {
      look_for_netdev(enter(std::move(stored), kWaits));
      continue;
    }
    if (!record && record.error().code() == ESTALE) {
      forget(stored, record.error().message());
      continue;
    }
    if (!record) {
      spdlog::warn("vdevice {}: cannot be restored: {}", label, record.error().message());
      note("lost", stored.id, stored.spec, record.error().message());
      enter_again(std::move(stored), record.error());
      continue;
    }
    spdlog::info("vdevice {}: restored", label);
    enter(std::move(*record));
  }
  // First each gets the GIDs that it had; a new GID that another vdevice owns is refused as usual.
  std::map<uint64_t, std::set<std::string>> trees;
  for (const auto& [id, record] : records_) {
    apply(*record);
    show_sysfs_again(*record);
    trees[record->link.netns_cookie].insert(record->spec.name);
    store_again(*record);
  }
  for (const auto& [id, lost] : lost_)
    if (lost.netns_dir != nullptr) trees[lost.vdev.netns_cookie].insert(lost.vdev.spec.name);
  run_dir_.keep(trees);
  retry_delay_ = std::chrono::seconds(1);
  retry_later();
  return {};
}

// The next epoch is another one than this daemon's last, and than `others`, in which sessions were
// served. It is chosen at random, so that no worker can bring it about by what it writes into the
// anchors of its sessions, and a program that has slept for several finds none of its own again.
void Daemon::begin_epoch(const std::set<uint32_t>& others) {
  uint32_t next = 0;
  do {
    next = static_cast<uint32_t>(base::random64() % (ipc::kEpochs - 1)) + 1;
  } while (next == settings_.epoch || others.contains(next));
  settings_.epoch = next;
  furnisher_.set_epoch(next);
}

// Reads the session files of the previous daemon and numbers new sessions after them. All files
// remain until this daemon is certain to start; otherwise the next daemon may take them over.
Daemon::FoundSessions Daemon::find_sessions() {
  settings_.state_dir = run_dir_.state_dir();
  FoundSessions found;
  std::set<uint32_t> usable, epochs;
  uint32_t last = 0;
  for (const auto& [path, number] : RecordFile::list(settings_.state_dir, SessionFiles::kJournal)) {
    last = std::max(last, number);
    auto files = SessionFiles::open(settings_.state_dir, number);
    if (!files) {
      spdlog::warn("the session in {} cannot be taken over: {}", path, files.error().message());
      found.unusable.push_back(path);
      continue;
    }
    if (!files->journal->is_open()) {
      found.unusable.push_back(path);
      continue;
    }
    usable.insert(number);
    epochs.insert(files->anchors->anchors().of.epoch);
    found.files.push_back(std::move(*files));
  }
  for (const auto& [path, number] : RecordFile::list(settings_.state_dir, SessionFiles::kAnchors))
    if (!usable.contains(number)) found.unusable.push_back(path);
  begin_epoch(epochs);
  furnisher_.begin(settings_.state_dir, run_dir_.arenas(), settings_.epoch, last,
                   settings_.patience());
  return found;
}

void Daemon::adopt(FoundSessions found) {
  for (const auto& path : found.unusable) ::unlink(path.c_str());
  left_ = std::move(found.files);
  cm_.keep_sessions(settings_.state_dir, run_dir_.path());
  // Sessions that wait for a lost vdevice must be adopted before their clients give up.
  patience_ = loop_.after(settings_.patience(), [this] {
    patience_.reset();
    adopt_those_that_can();
  });
  adopt_those_that_can();
}

bool Daemon::awaits_others(const Record& record) const {
  return later_.contains(record.fabric) || unanswered_.contains(record.id);
}

// Of left_, the sessions of the fabrics that wait for nothing. later_: the others.
std::vector<Furnisher::Found> Daemon::those_that_can_be_adopted() {
  std::set<uint64_t> with_sessions;
  for (const auto& files : left_) with_sessions.insert(files.anchors->anchors().of.vdevice);
  later_.clear();
  for (const auto& [id, lost] : lost_)
    if (patience_.active() && with_sessions.contains(id)) later_.insert(fabric_of(lost.vdev));

  std::vector<Furnisher::Found> now;
  for (auto& files : std::exchange(left_, {})) {
    const uint64_t id = files.anchors->anchors().of.vdevice;
    const Record* const its = find(id);
    const auto lost = lost_.find(id);
    const std::string fabric = its != nullptr        ? its->fabric
                               : lost != lost_.end() ? fabric_of(lost->second.vdev)
                                                     : std::string();
    if (later_.contains(fabric))
      left_.push_back(std::move(files));
    else if (auto found = with_vdevice(std::move(files)))
      now.push_back(std::move(*found));
  }
  return now;
}

// Adopts the sessions of a fabric when all its vdevices with sessions are restored, or when no
// client waits any longer, so that each queue pair finds its peer. Those that worked last are given
// to the workers first. While others of their vdevices come, or one of them has a process that
// cannot be inspected, a worker keeps back their peers (kept_back.h).
void Daemon::adopt_those_that_can() {
  adopt_again_.reset();
  std::set<uint64_t> awaiting, coming;
  for (const auto& [id, record] : records_)
    if (awaits_others(*record)) awaiting.insert(id);
  unanswered_.clear();
  auto now = those_that_can_be_adopted();
  for (const auto& one : now) coming.insert(one.vdevice);
  Adopting adopting;
  const auto give_batch = [&](std::vector<Furnisher::Adopted> sessions) {
    for (const uint64_t id : std::exchange(coming, {})) {
      awaiting.insert(id);
      if (WorkerEnd* const worker = workers_.find(find(id)->domain))
        worker->send(Await{id, 0, true});
    }
    for (WorkerEnd* const worker : give(std::move(sessions), &adopting)) worker->send(TakeOver{});
  };
  auto taken = furnisher_.take_over(*settings_.broker, std::move(now), give_batch);
  cm_later_.clear();
  for (auto& files : taken.unanswered) {
    const Anchor& of = files.anchors->anchors().of;
    unanswered_.insert(of.vdevice);
    cm_later_.insert(of.netns);
    left_.push_back(std::move(files));
  }
  if (!taken.unanswered.empty())
    adopt_again_ = loop_.after(taken.again_after, [this] { adopt_those_that_can(); });
  for (const auto& [id, record] : records_) {
    const auto searched = taken.searched.find(id);
    const auto used = searched != taken.searched.end() ? searched->second : base::Duration(0);
    const bool waits = awaits_others(*record), waited = awaiting.contains(id);
    if (used.count() == 0 && waits == waited) continue;
    WorkerEnd* const worker = workers_.find(record->domain);
    if (worker == nullptr) continue;
    worker->send(Await{id, static_cast<uint64_t>(used.count()), waits});
    if (waited && !waits) adopting.workers.emplace(worker, record.get());  // what it has kept back
  }
  (void)give(std::move(taken.sessions), &adopting);
  for (const auto& [worker, its] : adopting.workers) worker->send(TakeOver{});
  adopt_cm_sessions(std::move(adopting));
  if (later_.empty()) patience_.reset();
}

// A program may repeat rdma_accept() as soon as its session of rdma_cm is there, and the queue pair
// that it names must be there then: when the worker has answered.
void Daemon::adopt_cm_sessions(Adopting adopting) {
  for (const auto& [id, record] : records_)
    if (later_.contains(record->fabric)) cm_later_.insert(record->link.netns_cookie);
  for (const auto& [id, lost] : lost_)
    if (later_.contains(fabric_of(lost.vdev))) cm_later_.insert(lost.vdev.netns_cookie);
  adopting.namespaces.insert(cm_later_.begin(), cm_later_.end());
  cm_.adopt_sessions(std::move(adopting.namespaces));
  const auto unanswered = std::make_shared<size_t>(adopting.workers.size());
  for (const auto& [worker, its] : adopting.workers)
    worker->send(CheckLimits{its->id,
                             answers_.expect(its->domain, kPatienceOfCm,
                                             [this, unanswered](const ToControl*) {
                                               if (--*unanswered == 0)
                                                 cm_.adopt_sessions(cm_later_);
                                             }),
                             {}});
}

std::set<WorkerEnd*> Daemon::give(std::vector<Furnisher::Adopted> sessions, Adopting* adopting) {
  std::set<WorkerEnd*> to;
  for (auto& one : sessions) {
    const Record& its = *find(one.vdevice);
    WorkerEnd* const worker = workers_.find(its.domain);
    if (worker == nullptr) continue;  // it ended since with_vdevice()
    note("takeover", its.id, its.spec, "the session of a program goes on");
    one.kit.cgroup = cgroup_of(its, one.caller->peer());
    workers_.add(its.domain, one.connection);
    for (auto& each : parcels(std::move(one))) worker->send(std::move(each));
    to.insert(worker);
    adopting->workers.emplace(worker, &its);
    adopting->namespaces.insert(its.link.netns_cookie);
  }
  return to;
}

std::optional<Furnisher::Found> Daemon::with_vdevice(SessionFiles files) {
  const Anchor& of = files.anchors->anchors().of;
  Record* const record = find(of.vdevice);
  if (record != nullptr && record->link.netns_cookie == of.netns &&
      record->node_guid.big_endian() == of.node_guid)
    return Furnisher::Found{of.vdevice,
                            record->label,
                            std::move(files),
                            record->intake,
                            run_dir_.session_socket(of.netns, record->number),
                            recipient(*record)};
  spdlog::warn(
      "vdevice {}: the session of process {} cannot be taken over: the vdevice is not there",
      of.name, of.process.pid);
  files.keep(false);
  return std::nullopt;
}

void Daemon::retry_later() {
  constexpr base::Duration kLongest = std::chrono::seconds(30);
  if (lost_.empty()) return retry_.reset();
  retry_ = loop_.after(retry_delay_, [this] { restore_lost(); });
  retry_delay_ = std::min(2 * retry_delay_, kLongest);
}

void Daemon::restore_lost(uint64_t id, const std::string& netdev) {
  if (lost_.at(id).leaving) return;
  Lost lost = take_lost(id);  // frees its name and number for the restored vdevice
  auto record = make_again(lost.vdev, netdev);
  if (!record && record.error().code() == ESTALE) {
    const VdevInfo last = info(lost);
    forget(lost.vdev, record.error().message());
    members_changed(last.fabric);
    return tell(WatchEvent::Type::kRemoved, last, record.error().message());
  }
  if (!record) {
    const bool was_pending = lost.vdev.pending();
    Lost& again = enter_again(std::move(lost.vdev), record.error());
    again.had_netdev = again.had_netdev || lost.had_netdev;
    hand_over(std::move(lost.sysfs), again.sysfs.get());
    if (again.vdev.pending() != was_pending)
      tell(WatchEvent::Type::kChanged, info(again), again.reason);
    return;
  }
  Record& made = enter(std::move(*record));
  spdlog::info("vdevice {}: {}", made.label, lost.vdev.pending() ? "completed" : "restored");
  if (!lost.vdev.pending() || lost.had_netdev)
    note("restored", made.id, made.spec, "it is no longer lost");
  apply(made);
  show_sysfs_again(made);
  hand_over(std::move(lost.sysfs), made.sysfs.get());
  store_again(made);
  tell(WatchEvent::Type::kChanged, info(made), lost.vdev.pending() ? "completed" : "restored");
}

void Daemon::restore_lost() {
  std::vector<uint64_t> ids;
  for (const auto& [id, lost] : lost_)
    if (lost.vdev.pending())
      look_for_netdev(lost);
    else
      ids.push_back(id);
  for (const uint64_t id : ids) restore_lost(id);
  if (patience_.active()) adopt_those_that_can();
  retry_later();
}

// Its namespace or its owner has ended.
void Daemon::forget(const StoredVdev& vdev, const std::string& reason) {
  spdlog::warn("vdevice {}: {}, so it is deleted", label_of(vdev.spec.netns, vdev.spec.name),
               reason);
  note("deleted", vdev.id, vdev.spec, reason);
  forget_later(vdev.id);
}

StoredVdev Daemon::stored_form(const Record& record) const {
  StoredVdev stored;
  stored.id = record.id;
  stored.spec = record.spec;
  stored.asked = record.asked;
  stored.node_guid = record.node_guid;
  stored.boot_id = boot_id_;
  stored.netns_cookie = record.link.netns_cookie;
  stored.number = record.number;
  stored.ifindex = record.link.ifindex;
  stored.gids = record.gids.gids();
  stored.first_addresses = record.first_addresses;
  return stored;
}

std::future<Result<void>> Daemon::store(Record& record) {
  record.stored = stored_form(record);
  return outside_.writer->write(record.stored);
}

void Daemon::store_again(Record& record) {
  StoredVdev now = stored_form(record);
  if (record.leaving || in_doubt_.contains(record.id) || now == record.stored) return;
  record.stored = now;
  outside_.writer->write_later(std::move(now));
}

void Daemon::store_again(const Lost& lost) {
  if (lost.leaving || in_doubt_.contains(lost.vdev.id)) return;
  outside_.writer->write_later(lost.vdev);
}

void Daemon::forget_later(uint64_t id) { outside_.writer->write_later(Store::Forgotten{id}); }

VdevInfo Daemon::info(const Lost& lost) const {
  const VdevSpec& spec = lost.vdev.spec;
  VdevInfo info;
  info.id = lost.vdev.id;
  info.name = spec.name;
  info.parent = spec.parent;
  info.tenant = tenant_of(spec, info.id);
  info.fabric = fabric_of(spec, info.id);
  const FabricSpec settings = settings_of(info.fabric);
  info.reach = settings.reach;
  info.peers = settings.peers;
  info.netns = spec.netns;
  info.netdev = spec.netdev;
  info.node_guid = lost.vdev.node_guid.text();
  info.netns_cookie = lost.netns_dir != nullptr ? lost.vdev.netns_cookie : 0;
  for (const auto& setting : spec.quota) info.quota.push_back({setting.kind, 0, setting.limit});
  info.port_state = lost.vdev.pending() ? "PENDING" : "LOST";
  info.no_direct = spec.no_direct;
  info.allowed = spec.allow;
  info.addresses = spec.addresses;
  info.addresses_given = !spec.addresses.empty();
  info.gid_layout = spec.gid_layout;
  info.lost = lost.reason;
  info.owner = spec.owner;
  info.owner_ended = spec.owner.pid != 0 && lost.owner == nullptr;
  info.end_with_owner = spec.end_with_owner;
  info.containers = spec.containers;
  info.labels = spec.labels;
  return info;
}

}  // namespace vrdma::vrdmad
