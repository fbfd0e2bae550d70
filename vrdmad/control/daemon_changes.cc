// What operators change. Each change is made in two steps on the control thread, which serves
// others while it gets to the disk: the caller waits for that in between.
#include <spdlog/spdlog.h>

#include <utility>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

// What is set replaces what was set before.
void merge(const std::vector<QuotaSetting>& quota, std::vector<QuotaSetting>* into) {
  for (const auto& setting : quota) {
    std::erase_if(*into, [&](const auto& one) { return one.kind == setting.kind; });
    into->push_back(setting);
  }
}

}  // namespace

struct Daemon::Begun {
  uint64_t id = 0;  // the record's
  VdevInfo info;
  std::future<Result<void>> on_disk;
};

Result<VdevInfo> Daemon::create_vdev(const VdevSpec& spec) {
  std::map<std::string, Lost>::node_type replaced;
  auto begun = call([&]() -> Result<Begun> {
    const std::string fabric = fabric_of(spec);
    // From now on it is a member: what others have beyond their own addresses is free for it.
    joining_ = &spec;
    members_changed(fabric);
    auto record = make(spec, nullptr);
    joining_ = nullptr;
    if (!record) members_changed(fabric);
    if (!record) return pass(std::move(record.error()));
    replaced = lost_.extract(spec.name);
    Record& made = *records_.emplace(spec.name, std::move(*record)).first->second;
    return Begun{made.id, info(made), store(made)};
  });
  if (!begun) return pass(std::move(begun.error()));
  auto stored = begun->on_disk.get();
  return call([&]() -> Result<VdevInfo> {
    const bool there = find(spec.name, begun->id) != nullptr;
    if (!stored) {
      if (there) take_out(spec.name);
      if (!replaced.empty()) lost_.insert(std::move(replaced));
      return pass(std::move(stored.error()), "vdevice '" + spec.name + "' is not made");
    }
    const VdevInfo& made = begun->info;
    if (patience_.active()) adopt_those_that_can();
    forget_tenants();
    spdlog::info("vdevice {}: created on {} in netns {}", made.name, made.netdev, made.netns);
    if (there) tell(WatchEvent::Type::kAdded, made, "created");
    return made;
  });
}

Result<void> Daemon::delete_vdev(const std::string& name) {
  const std::lock_guard one_at_a_time(changes_);
  auto begun = call([&]() -> Result<Begun> {
    const bool lost = lost_.contains(name);
    auto found = find(name);
    if (!found && !lost) return pass(std::move(found.error()));
    if (found) (*found)->leaving = true;
    return Begun{found ? (*found)->id : 0, {}, writer_.write(Store::Forgotten{name})};
  });
  if (!begun) return pass(std::move(begun.error()));
  auto erased = begun->on_disk.get();
  return call([&]() -> Result<void> {
    Record* const record = find(name, begun->id);
    if (!erased) {
      if (record != nullptr) record->leaving = false;
      if (record != nullptr) store_again(*record);
      return pass(std::move(erased.error()), "vdevice '" + name + "' is not deleted");
    }
    if (record != nullptr) {
      remove(name, "deleted");
    } else if (const auto lost = lost_.extract(name); begun->id == 0 && !lost.empty()) {
      const VdevInfo last = info(lost.mapped());
      if (patience_.active()) adopt_those_that_can();
      members_changed(last.fabric);
      tell(WatchEvent::Type::kRemoved, last, "deleted");
    }
    spdlog::info("vdevice {}: deleted", name);
    return {};
  });
}

Result<VdevInfo> Daemon::set_quota(const std::string& name,
                                   const std::vector<QuotaSetting>& quota) {
  const std::lock_guard one_at_a_time(changes_);
  const auto settings = to_settings(quota);
  std::vector<QuotaSetting> before;
  auto begun = call([&]() -> Result<Begun> {
    auto found = find(name);
    if (!found) return pass(std::move(found.error()));
    Record& record = **found;
    if (auto ok = record.allotment.check(settings); !ok) return pass(std::move(ok.error()));
    if (auto ok = record.cm->check_limits(settings); !ok) return pass(std::move(ok.error()));
    if (auto ok = worker_of(record.fabric).check_limits(name, settings); !ok)
      return pass(std::move(ok.error()));
    // On disk first: what has been set could not always be taken back.
    before = record.spec.quota;
    merge(quota, &record.spec.quota);
    return Begun{record.id, {}, store(record)};
  });
  if (!begun) return pass(std::move(begun.error()));
  auto stored = begun->on_disk.get();
  return call([&]() -> Result<VdevInfo> {
    Record* const record = find(name, begun->id);
    if (record == nullptr) return fail(ENOENT, "vdevice '" + name + "' has gone meanwhile");
    if (!stored) {
      record->spec.quota = before;
      return pass(std::move(stored.error()), "the quota of vdevice '" + name + "' is not changed");
    }
    Worker& worker = worker_of(record->fabric);
    const auto had = record->allotment.settings();
    record->allotment.change(settings);
    // Since it was checked, more may be in use.
    auto ok = worker.set_limits(name, settings, record->allotment.limited());
    if (ok) ok = record->cm->set_limits(settings);
    if (!ok) {
      record->allotment.change(had);
      record->spec.quota = before;
      store_again(*record);
      return pass(std::move(ok.error()));
    }
    set_entrance(*record);
    VdevInfo changed = info(*record);
    tell(WatchEvent::Type::kChanged, changed, "quota changed");
    return changed;
  });
}

}  // namespace vrdma::vrdmad
