// What was made before: kept on disk, made again at the start, or lost.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "netns/netns.h"
#include "vrdmad/daemon_record.h"

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

// Each by the worker of its vdevice, all of them at once: the next to come finds all that there is.
void Daemon::adopt(FoundSessions found) {
  for (const auto& path : found.unusable) ::unlink(path.c_str());
  std::map<Worker*, std::vector<std::unique_ptr<SessionFile>>> of_workers;
  for (auto& file : found.files) {
    file->keep(false);
    const auto its = records_.find(summary_of(*file)->vdevice);
    Worker& worker = its != records_.end() ? worker_of(its->second->fabric) : *workers_.front();
    of_workers[&worker].push_back(std::move(file));
  }
  for (auto& [worker, its] : of_workers) worker->adopt(std::move(its));
  cm_.keep_sessions(settings_);
  cm_.adopt_sessions();
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
  retry_later();
}

// Its namespace has ended.
void Daemon::forget(const std::string& name, const std::string& reason) {
  spdlog::warn("vdevice {}: {}, so it is deleted", name, reason);
  if (auto erased = store_.erase(name); !erased)
    spdlog::error("vdevice {}: it is not forgotten: {}", name, erased.error().message());
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

Result<void> Daemon::store(Record& record) {
  StoredVdev now = stored_form(record);
  if (now == record.stored) return {};
  if (auto stored = store_.put(now); !stored) return pass(std::move(stored.error()));
  record.stored = std::move(now);
  return {};
}

// After a change that was not an operator's: there is nobody to be told of an error.
void Daemon::store_again(Record& record) {
  if (auto stored = store(record); !stored)
    spdlog::error("vdevice {}: {}", record.spec.name, stored.error().message());
}

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
