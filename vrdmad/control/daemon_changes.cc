// Changes by operators. Each change runs in two steps on the control thread. In between, the caller
// waits for the disk while the control thread serves other calls.
#include <spdlog/spdlog.h>

#include <utility>

#include "core/base/label.h"
#include "netns/netns.h"
#include "vrdmad/control/daemon_record.h"
#include "vrdmad/control/same_spec.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

// A new setting replaces the earlier one of its kind.
void merge(const std::vector<provisioning::Setting>& quota, std::vector<QuotaSetting>* into) {
  for (const auto& setting : quota) {
    std::erase_if(*into, [&](const auto& one) { return one.kind == setting.kind; });
    into->push_back({setting.kind, setting.limit});
  }
}

// The disk has a change that was refused after it was stored.
constexpr const char* kNotUndone =
    "(the disk did not let the quota be put back: a vrdmad that starts before it does has the "
    "changed one)";

// Of a setting that was understood.
std::vector<Limit> limits_of(const std::vector<provisioning::Setting>& settings) {
  std::vector<Limit> limits;
  for (const provisioning::Kind kind : provisioning::all_kinds())
    for (const auto& one : settings)
      if (one.kind == provisioning::traits(kind).name) limits.push_back({kind, one.limit});
  return limits;
}

// EPERM: a label by which the hook of its container, and vrdmad, know a vdevice.
Result<std::map<std::string, std::string>> changed_labels(const VdevSpec& spec,
                                                          const LabelChange& change) {
  std::map<std::string, std::string> labels = spec.labels;
  for (const auto& key : change.removed) {
    if (change.set.contains(key)) return fail(EINVAL, "label '" + key + "' is set and removed");
    labels.erase(key);
  }
  for (const auto& [key, value] : change.set) labels[key] = value;
  if (auto ok = base::check_labels(labels); !ok) return pass(std::move(ok.error()));
  if (spec.containers.empty()) return labels;
  for (const char* const key : HookBackend::kOwnLabels)
    if (label_value(spec, key) != (labels.contains(key) ? labels.at(key) : ""))
      return fail(EPERM, std::string("label '") + key + "' is that of its container's hook");
  return labels;
}

// What a worker answered; nullptr: nothing in time.
Result<void> result_of(const ToControl* answer, const std::string& label) {
  const auto* const done = answer != nullptr ? std::get_if<Done>(answer) : nullptr;
  if (done == nullptr)
    return fail(EAGAIN, "the worker of vdevice " + label + " is busy: the quota is unchanged");
  if (done->error == 0) return {};
  return fail(done->error, done->reason);
}

}  // namespace

Result<Daemon::Begun> Daemon::existing(uint64_t id, const VdevSpec& wanted) {
  const Record* record = find(id);
  if (record == nullptr) {  // lost: what was missing may exist by now
    const StoredVdev& stored = lost_.at(id).vdev;
    VdevSpec made = stored.spec;
    made.quota = stored.asked;
    if (const auto how = difference(made, wanted))
      return fail(EEXIST, "vdevice '" + wanted.name + "' has " + *how);
    restore_lost(id);
    if (patience_.active()) adopt_those_that_can();
    record = find(id);
    if (record == nullptr && lost_.contains(id))
      return fail(ENODEV, "vdevice '" + wanted.name + "' is lost: " + lost_.at(id).reason);
    if (record == nullptr)
      return fail(ESTALE, "vdevice '" + wanted.name + "' was deleted meanwhile");
  }
  if (record->leaving)
    return fail(EBUSY, "vdevice '" + wanted.name + "' is being deleted: try again");
  VdevSpec made = record->spec;
  made.quota = record->asked;
  if (const auto how = difference(made, wanted))
    return fail(EEXIST, "vdevice '" + wanted.name + "' has " + *how);
  return Begun{id, info(*record), record->on_disk, true};
}

Result<VdevInfo> Daemon::create_vdev(const VdevSpec& given, bool if_absent) {
  if (auto ok = check_name("the vdevice", given.name); !ok) return pass(std::move(ok.error()));
  auto spec = canonical(given);
  if (!spec) return pass(std::move(spec.error()));
  std::vector<Lost> replaced;
  auto begun = call([&]() -> Result<Begun> {
    if (spec->owner.pid != 0) {
      auto owner = outside_.processes->identify(spec->owner);
      if (!owner) return pass(std::move(owner.error()));
      spec->owner = *owner;
    }
    auto netns = settings_.broker->netns(spec->netns);
    if (!netns) return pass(std::move(netns.error()));
    const auto there = directory_.at(netns->cookie, spec->name);
    if (there && if_absent) return existing(*there, *spec);
    if (there && records_.contains(*there))
      return fail(EEXIST, "there is a vdevice '" + spec->name + "' in netns '" +
                              records_.at(*there)->spec.netns + "' already");
    if (if_absent)
      for (const uint64_t other : directory_.created_as(spec->netns, spec->name))
        if (lost_.contains(other)) return existing(other, *spec);
    return begin(*spec, *netns, &replaced);
  });
  if (!begun) return pass(std::move(begun.error()));
  return finish(*begun, *spec, std::move(replaced));
}

Result<Daemon::Begun> Daemon::begin(const VdevSpec& spec, const netns::Netns& netns,
                                    std::vector<Lost>* replaced, const std::string& waits) {
  std::set<uint64_t> others = directory_.created_as(spec.netns, spec.name);
  if (const auto there = directory_.at(netns.cookie, spec.name)) others.insert(*there);
  std::erase_if(others, [&](uint64_t other) { return !lost_.contains(other); });
  for (const uint64_t other : others)
    if (lost_.at(other).leaving)
      return fail(EBUSY, "vdevice '" + spec.name + "' is being deleted: try again");
  const uint64_t id = new_id();
  const Joining joining{fabric_of(spec, id), tenant_of(spec, id)};
  // The new vdevice is a member from now on; members give up GIDs beyond their own addresses.
  for (const uint64_t other : others) replaced->push_back(take_lost(other));
  const auto undo = [&] {
    put_back(replaced);
    members_changed(joining.fabric);
  };
  const std::vector<uint64_t> gone(others.begin(), others.end());
  if (!waits.empty()) {
    auto pending = make_pending(id, spec, netns, waits);
    if (!pending) {
      undo();
      return pass(std::move(pending.error()));
    }
    untold_.insert(id);
    in_doubt_.insert(id);
    members_changed(joining.fabric);
    return Begun{id, info(**pending),
                 outside_.writer->write(Store::Replacement{(*pending)->vdev, gone}).share(), false};
  }
  joining_ = &joining;
  members_changed(joining.fabric);
  auto record = make(id, spec, netns, nullptr);
  joining_ = nullptr;
  if (!record) {
    undo();
    return pass(std::move(record.error()));
  }
  Record& made = enter(std::move(*record));
  untold_.insert(id);
  in_doubt_.insert(id);
  made.stored = stored_form(made);
  made.on_disk = outside_.writer->write(Store::Replacement{made.stored, gone}).share();
  return Begun{id, info(made), made.on_disk, false};
}

void Daemon::put_back(std::vector<Lost>* replaced) {
  for (auto& lost : *replaced) {
    const Lost& again = enter(std::move(lost.vdev), lost.reason);
    hand_over(std::move(lost.sysfs), again.sysfs.get());
  }
  if (!replaced->empty() && !retry_.active()) retry_later();
  replaced->clear();
}

Result<VdevInfo> Daemon::finish(const Begun& begun, const VdevSpec& spec,
                                std::vector<Lost> replaced) {
  // A vdevice of an earlier daemon is on disk.
  const Result<void> stored = begun.on_disk.valid() ? wait_for(begun.on_disk) : Result<void>();
  const auto not_created = [&] {
    return pass(stored.error(), "vdevice '" + spec.name + "' is not created");
  };
  if (begun.existed && stored) return begun.info;
  if (begun.existed) return not_created();  // whoever creates it takes it out
  return call([&]() -> Result<VdevInfo> {
    untold_.erase(begun.id);
    const Record* const record = find(begun.id);
    const bool stays = stored || is_joined(begun.id, spec);
    if (stays)
      end_doubt(begun.id);
    else
      in_doubt_.erase(begun.id);
    if (!stored && stays) {
      tell(WatchEvent::Type::kAdded, record != nullptr ? info(*record) : info(lost_.at(begun.id)),
           "created");
      leave(begun.id, spec.containers.front(), "was not set up");
      return not_created();
    }
    if (!stored) {
      if (record != nullptr) take_out(begun.id);
      if (lost_.contains(begun.id)) members_changed(info(take_lost(begun.id)).fabric);
      forget_later(begun.id);  // a container that joined it, and ended, may be about to be stored
      put_back(&replaced);
      return not_created();
    }
    if (patience_.active()) adopt_those_that_can();
    forget_tenants();
    const auto pending = lost_.find(begun.id);
    const SysfsTree* const files = record != nullptr        ? record->sysfs.get()
                                   : pending != lost_.end() ? pending->second.sysfs.get()
                                                            : nullptr;
    for (auto& lost : replaced) {
      tell(WatchEvent::Type::kRemoved, info(lost), "replaced");
      if (lost.vdev.netns_cookie == begun.info.netns_cookie)
        hand_over(std::move(lost.sysfs), files);
    }
    // Its netdev may have changed, or ended, since the creation.
    const VdevInfo made = record != nullptr        ? info(*record)
                          : pending != lost_.end() ? info(pending->second)
                                                   : begun.info;
    spdlog::info("vdevice {}: created on {}, id {}", label_of(made.netns, made.name),
                 made.netdev.empty() ? "no netdev yet" : made.netdev, made.id);
    if (record != nullptr || pending != lost_.end())
      tell(WatchEvent::Type::kAdded, made, "created");
    return made;
  });
}

Result<VdevKey> Daemon::delete_vdev(const std::string& name) {
  const std::lock_guard one_at_a_time(changes_);
  return delete_in_turn(name);
}

Result<VdevKey> Daemon::delete_in_turn(const std::string& name) {
  auto begun = call([&]() -> Result<Begun> {
    const auto id = directory_.find(name);
    if (!id) return pass(id.error());
    Record* const record = find(*id);
    (record != nullptr ? record->leaving : lost_.at(*id).leaving) = true;
    return Begun{*id, record != nullptr ? info(*record) : info(lost_.at(*id)),
                 outside_.writer->write(Store::Forgotten{*id}).share()};
  });
  if (!begun) return pass(std::move(begun.error()));
  const Result<void> erased = wait_for(begun->on_disk);
  return call_later<Result<VdevKey>>([&](auto done) {
    Record* const record = find(begun->id);
    VdevKey key{begun->id, begun->info.name, begun->info.netns};
    if (!erased) {
      if (record != nullptr) {
        record->leaving = false;
        store_again(*record);
      }
      if (const auto lost = lost_.find(begun->id); lost != lost_.end())
        lost->second.leaving = false;
      return done(pass(erased.error(), "vdevice '" + name + "' is not deleted"));
    }
    if (record != nullptr) {
      spdlog::info("vdevice {}: deleted", record->label);
      return remove(begun->id, "deleted", [done, key] { done(key); });
    }
    if (lost_.contains(begun->id)) {
      const VdevInfo last = info(take_lost(begun->id));
      spdlog::info("vdevice {}: deleted", label_of(last.netns, last.name));
      if (patience_.active()) adopt_those_that_can();
      members_changed(last.fabric);
      tell(WatchEvent::Type::kRemoved, last, "deleted");
    }
    done(std::move(key));
  });
}

tl::unexpected<base::Error> Daemon::fail_without(uint64_t id, const std::string& name) const {
  if (const auto lost = lost_.find(id); lost != lost_.end())
    return fail(ENODEV, "vdevice '" + name + "' is lost: " + lost->second.reason);
  return fail(ENOENT, "vdevice '" + name + "' was deleted meanwhile");
}

// The vdevice may have lost its netdev, or got another, since it was written.
void Daemon::end_doubt(uint64_t id) {
  in_doubt_.erase(id);
  if (Record* const record = find(id)) return store_again(*record);
  if (const auto lost = lost_.find(id); lost != lost_.end()) store_again(lost->second);
}

Result<VdevInfo> Daemon::set_quota(const std::string& name,
                                   const std::vector<QuotaSetting>& quota) {
  const std::lock_guard one_at_a_time(changes_);
  std::vector<provisioning::Setting> settings;
  std::vector<QuotaSetting> before;
  auto begun = call_later<Result<Begun>>([&](auto done) {
    auto found = find(name);
    if (!found) return done(pass(std::move(found.error())));
    Record& record = **found;
    if (record.leaving) return done(fail(EBUSY, "vdevice '" + name + "' is being deleted"));
    auto granted = record.allotment.granted(to_settings(quota));
    if (!granted) return done(pass(std::move(granted.error())));
    settings = std::move(*granted);
    if (auto ok = record.allotment.check(settings); !ok) return done(pass(std::move(ok.error())));
    if (auto ok = record.cm->check_limits(settings); !ok) return done(pass(std::move(ok.error())));
    record.allotment.reserve(settings);
    const uint64_t id = record.id;
    ask(
        record, kWorkerPatience,
        [&](uint64_t ticket) {
          return CheckLimits{id, ticket, limits_of(settings)};
        },
        [&, id, done](const ToControl* answer) {
          Record* const its = find(id);
          if (its == nullptr || its->leaving) return done(fail_without(id, name));
          if (auto ok = result_of(answer, its->label); !ok) {
            its->allotment.change({});
            return done(pass(std::move(ok.error())));
          }
          // Store it first, because a limit that was set cannot always be taken back.
          before = its->spec.quota;
          merge(settings, &its->spec.quota);
          in_doubt_.insert(id);
          done(Begun{id, {}, store(*its).share(), true});
        });
  });
  if (!begun) return pass(std::move(begun.error()));
  const Result<void> stored = wait_for(begun->on_disk);
  std::shared_future<Result<void>> undone;
  auto result = call_later<Result<VdevInfo>>([&](auto done) {
    VdevSpec* const spec = spec_of(begun->id);
    if (spec != nullptr && !stored) spec->quota = before;
    end_doubt(begun->id);
    if (spec == nullptr) return done(fail_without(begun->id, name));
    Record* const record = find(begun->id);
    if (!stored && record != nullptr) record->allotment.change({});
    if (!stored)
      return done(pass(stored.error(), "the quota of vdevice '" + name + "' is unchanged"));
    if (record == nullptr) return done(info(lost_.at(begun->id)));  // its netdev ended meanwhile
    const auto had = record->allotment.settings();
    const bool was_limited = record->allotment.limited();
    record->allotment.change(settings);
    record->allotment.reserve(had);
    // More may be in use since the check.
    ask(
        *record, kWorkerPatience,
        [&](uint64_t ticket) {
          return SetLimits{begun->id, ticket, limits_of(settings), record->allotment.limited()};
        },
        [&, had, was_limited, done](const ToControl* answer) {
          Record* const its = find(begun->id);
          if (its == nullptr && lost_.contains(begun->id)) return done(info(lost_.at(begun->id)));
          if (its == nullptr) return done(fail_without(begun->id, name));
          auto ok = result_of(answer, its->label);
          if (ok) ok = its->cm->set_limits(settings);
          if (!ok) {
            its->allotment.change(had);
            its->spec.quota = before;
            if (!its->leaving) undone = store(*its).share();
            // A worker that was late does both; one that refused has nothing to change.
            if (WorkerEnd* const worker = workers_.find(its->domain))
              worker->send(SetLimits{its->id, 0, limits_of(had), was_limited});
            else
              show_limits(*its);
            return done(pass(std::move(ok.error())));
          }
          its->allotment.change({});
          set_entrance(*its);
          VdevInfo changed = info(*its);
          tell(WatchEvent::Type::kChanged, changed, "quota changed");
          done(std::move(changed));
        });
  });
  if (!undone.valid() || wait_for(undone)) return result;
  call([&] {
    if (const Record* const record = find(begun->id); record != nullptr && !record->leaving)
      outside_.writer->write_later(record->stored);
  });
  return fail(result.error().code(), result.error().message() + " " + kNotUndone);
}

Result<VdevInfo> Daemon::set_labels(const std::string& name, const LabelChange& change) {
  const std::lock_guard one_at_a_time(changes_);
  std::map<std::string, std::string> labels;
  auto begun = call([&]() -> Result<Begun> {
    auto found = find(name);
    if (!found) return pass(std::move(found.error()));
    Record& its = **found;
    if (its.leaving) return fail(EBUSY, "vdevice '" + name + "' is being deleted");
    auto changed = changed_labels(its.spec, change);
    if (!changed) return pass(std::move(changed.error()), "vdevice '" + name + "'");
    labels = std::move(*changed);
    its.stored = stored_form(its);
    its.stored.spec.labels = labels;
    in_doubt_.insert(its.id);
    return Begun{its.id, {}, outside_.writer->write(its.stored).share(), true};
  });
  if (!begun) return pass(std::move(begun.error()));
  const Result<void> stored = wait_for(begun->on_disk);
  return call([&]() -> Result<VdevInfo> {
    VdevSpec* const spec = spec_of(begun->id);
    // A container that joined meanwhile may have added one of its own.
    if (spec != nullptr && stored) spec->labels = changed_labels(*spec, change).value_or(labels);
    end_doubt(begun->id);
    if (spec == nullptr) return fail_without(begun->id, name);
    if (!stored) return pass(stored.error(), "the labels of vdevice '" + name + "' are unchanged");
    const Record* const its = find(begun->id);
    if (its != nullptr)
      enter_names(*its);
    else
      enter_names(lost_.at(begun->id).vdev);
    VdevInfo now = its != nullptr ? info(*its) : info(lost_.at(begun->id));
    tell(WatchEvent::Type::kChanged, now, "labels changed");
    return now;
  });
}

}  // namespace vrdma::vrdmad
