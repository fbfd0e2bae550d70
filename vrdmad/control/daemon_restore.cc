// What was made before: kept on disk, made again at the start, or lost.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "netns/netns.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

// Of a process, which means nothing after a boot.
bool is_of_process(const std::string& netns) {
  return netns.rfind("pid:", 0) == 0 || netns.rfind("/proc/", 0) == 0;
}

}  // namespace

std::string Daemon::boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id;
}

// The namespace in which a vdevice was, by the name that it was created with. Within one boot it
// must be the very one. ESTALE: it has ended, or will never be found again.
Result<netns::Netns> Daemon::locate(const StoredVdev& stored) {
  const std::string& spec = stored.spec.netns;
  const bool same_boot = stored.boot_id == boot_id_;
  if (!same_boot && is_of_process(spec))
    return fail(ESTALE, "'" + spec + "' was a process before the last boot");
  auto named = netns::resolve(spec);
  if (named && same_boot && named->cookie != stored.netns_cookie)
    return fail(ESTALE, "netns '" + spec + "' is another one than it was made in");
  if (!named && is_of_process(spec) &&
      (named.error().code() == ESRCH || named.error().code() == ENOENT))
    return fail(ESTALE, named.error().message());
  return named;
}

Result<void> Daemon::restore_all() {
  if (auto restored = restore_budgets(); !restored) return restored;
  auto all = store_.vdevs();
  if (!all) return pass(std::move(all.error()));
  for (auto& stored : *all) {
    const std::string name = stored.spec.name;
    joining_ = &stored.spec;
    auto record = make(stored.spec, &stored);
    joining_ = nullptr;
    if (!record && record.error().code() == ESTALE) {
      forget(name, record.error().message());
      continue;
    }
    if (!record) {
      spdlog::warn("vdevice {}: it cannot be restored: {}", name, record.error().message());
      lost_.insert_or_assign(name, Lost{std::move(stored), record.error().message()});
      continue;
    }
    spdlog::info("vdevice {}: restored", name);
    records_.emplace(name, std::move(*record));
  }
  // Each has what it had: what it is to have beside that is refused as ever, if another has it.
  for (const auto& [name, record] : records_) {
    apply(*record);
    store_again(*record);
  }
  retry_delay_ = std::chrono::seconds(1);
  retry_later();
  return {};
}

// What a dead daemon has written down of its sessions. Our own are numbered after them. All files
// stay until it is certain that this daemon starts: otherwise the next one may take them over.
Daemon::FoundSessions Daemon::find_sessions() {
  settings_.state_dir = run_dir_.state_dir();
  FoundSessions found;
  for (const auto& [path, number] : RecordFile::list(settings_.state_dir, ".session")) {
    Session::number_from(number);
    auto file = SessionFile::open(path);
    const auto of = file ? summary_of(**file) : std::nullopt;
    if (!of) {
      spdlog::warn("the session in {} cannot be taken over: {}", path,
                   file ? "it was not open yet" : file.error().message());
      found.unusable.push_back(path);
      continue;
    }
    settings_.epoch = std::max(settings_.epoch, of->epoch % (ipc::kEpochs - 1) + 1);
    found.files.push_back(std::move(*file));
  }
  return found;
}

void Daemon::adopt(FoundSessions found) {
  for (const auto& path : found.unusable) ::unlink(path.c_str());
  left_ = std::move(found.files);
  cm_.keep_sessions(settings_);
  // Those that wait for another's vdevice must come before their programs give up.
  patience_ = loop_.after(std::chrono::milliseconds(settings_.grace_ms / 2), [this] {
    patience_.reset();
    adopt_those_that_can();
  });
  adopt_those_that_can();
}

// A fabric is taken over as a whole, so that each queue pair finds its peer: when all vdevices are
// there that have sessions, or when no program waits any longer.
void Daemon::adopt_those_that_can() {
  std::set<std::string> with_sessions, later;
  for (const auto& file : left_) with_sessions.insert(summary_of(*file)->vdevice);
  for (const auto& [name, lost] : lost_)
    if (patience_.active() && with_sessions.contains(name)) later.insert(fabric_of(lost.vdev.spec));
  std::set<uint64_t> namespaces;
  for (const auto& [name, record] : records_)
    if (later.contains(record->fabric)) namespaces.insert(record->link.netns_cookie);
  for (const auto& [name, lost] : lost_)
    if (later.contains(fabric_of(lost.vdev.spec))) namespaces.insert(lost.vdev.netns_cookie);

  std::map<Worker*, std::vector<std::unique_ptr<SessionFile>>> of_workers;
  std::vector<std::unique_ptr<SessionFile>> left;
  for (auto& file : left_) {
    const std::string vdevice = summary_of(*file)->vdevice;
    const auto its = records_.find(vdevice);
    const auto lost = lost_.find(vdevice);
    const std::string fabric = its != records_.end() ? its->second->fabric
                               : lost != lost_.end() ? fabric_of(lost->second.vdev.spec)
                                                     : std::string();
    if (later.contains(fabric)) {
      left.push_back(std::move(file));
      continue;
    }
    file->keep(false);
    of_workers[&worker_of(fabric)].push_back(std::move(file));
  }
  left_ = std::move(left);
  for (const auto& worker : workers_) worker->adopt(std::move(of_workers[worker.get()]), later);
  cm_.adopt_sessions(std::move(namespaces));
  if (later.empty()) patience_.reset();
}

void Daemon::retry_later() {
  constexpr base::Duration kLongest = std::chrono::seconds(30);
  if (lost_.empty()) return retry_.reset();
  retry_ = loop_.after(retry_delay_, [this] { restore_lost(); });
  retry_delay_ = std::min(2 * retry_delay_, kLongest);
}

void Daemon::restore_lost() {
  for (auto it = lost_.begin(); it != lost_.end();) {
    const std::string name = it->first;
    auto record = make(it->second.vdev.spec, &it->second.vdev);
    if (!record && record.error().code() == ESTALE) {
      const VdevInfo last = info(it->second);
      it = lost_.erase(it);
      forget(name, record.error().message());
      tell(WatchEvent::Type::kRemoved, last, record.error().message());
      continue;
    }
    if (!record) {
      it->second.reason = record.error().message();
      ++it;
      continue;
    }
    it = lost_.erase(it);
    spdlog::info("vdevice {}: restored", name);
    Record& made = *records_.emplace(name, std::move(*record)).first->second;
    apply(made);
    store_again(made);
    tell(WatchEvent::Type::kChanged, info(made), "restored");
  }
  if (patience_.active()) adopt_those_that_can();
  retry_later();
}

// Its namespace has ended.
void Daemon::forget(const std::string& name, const std::string& reason) {
  spdlog::warn("vdevice {}: {}, so it is deleted", name, reason);
  forget_later(name);
}

StoredVdev Daemon::stored_form(const Record& record) const {
  StoredVdev stored;
  stored.spec = record.spec;
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
  return writer_.write(record.stored);
}

void Daemon::store_again(Record& record) {
  StoredVdev now = stored_form(record);
  if (record.leaving || now == record.stored) return;
  record.stored = now;
  writer_.write_later(std::move(now));
}

void Daemon::forget_later(const std::string& name) { writer_.write_later(Store::Forgotten{name}); }

VdevInfo Daemon::info(const Lost& lost) {
  const VdevSpec& spec = lost.vdev.spec;
  VdevInfo info;
  info.name = spec.name;
  info.parent = spec.parent;
  info.tenant = tenant_of(spec);
  info.fabric = fabric_of(spec);
  info.netns = spec.netns;
  info.netdev = spec.netdev;
  info.node_guid = lost.vdev.node_guid.text();
  info.port_state = "LOST";
  info.no_direct = spec.no_direct;
  info.addresses = spec.addresses;
  info.lost = lost.reason;
  return info;
}

}  // namespace vrdma::vrdmad
