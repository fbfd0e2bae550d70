#include "tests/sim/scenario.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "tests/sim/check.h"

namespace vrdma::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;
using vrdmad::Reach;
using vrdmad::VdevInfo;
using vrdmad::VdevSpec;

namespace {

// Few of each, so that they meet.
const std::vector<std::string> kNames{"v0", "v1", "v2"}, kNamespaces{"n0", "n1", "n2"},
    kNetdevs{"e0", "e1"}, kTenants{"", "t0", "t1"}, kFabrics{"", "", "f0"};
const std::vector<Reach> kReaches{Reach::kHost, Reach::kNetwork, Reach::kWire};
constexpr uint64_t kAddresses = 5;
constexpr auto kSlowCommit = seconds(3);
// Longer than the daemon's longest pause before it looks for what is lost.
constexpr auto kLongEnough = seconds(31);

netns::Address address(uint64_t number) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, static_cast<uint8_t>(number + 1)};
}

std::string text_of(const VdevSpec& spec) {
  std::string text = spec.netns + "/" + spec.name + " on " + spec.netdev;
  if (!spec.tenant.empty()) text += ", tenant " + spec.tenant;
  if (!spec.fabric.empty()) text += ", fabric " + spec.fabric;
  for (const auto& one : spec.quota) text += ", " + one.kind + "=" + std::to_string(one.limit);
  return text;
}

}  // namespace

void Scenario::say(const std::string& what) {
  if (trace_ == nullptr) return;
  const std::chrono::duration<double> at = machine_.host.time.now() - begun_;
  char time[32];
  std::snprintf(time, sizeof time, "%9.4f ", at.count());
  trace_->push_back(time + std::string(static_cast<size_t>(2 * calls_), ' ') + what);
}

netns::Link* Scenario::any_link(Chance& chance) {
  std::vector<netns::Link*> all;
  for (auto& [name, one] : machine_.host.namespaces)
    for (auto& [ifindex, link] : one.links) all.push_back(&link);
  return all.empty() ? nullptr : chance.of(all);
}

std::optional<uint64_t> Scenario::any_vdevice(Chance& chance) {
  std::vector<uint64_t> ids;
  for (const auto& [id, one] : model_.vdevices) ids.push_back(id);
  if (ids.empty()) return std::nullopt;
  return chance.of(ids);
}

void Scenario::add_link(Namespace* to, const std::string& name, Chance& chance) {
  netns::Link link;
  link.netns_cookie = to->cookie;
  link.ifindex = machine_.host.new_ifindex();
  link.name = name;
  link.mac = netns::Mac{2, 0, 0, 0, 0, static_cast<uint8_t>(link.ifindex)};
  link.mtu = 1500;
  link.up = true;
  link.addresses.push_back(address(chance.below(kAddresses)));
  to->links.emplace(link.ifindex, link);
}

void Scenario::create(Chance& chance) {
  VdevSpec spec;
  spec.name = chance.of(kNames);
  spec.netns = chance.of(kNamespaces);
  spec.netdev = chance.of(kNetdevs);
  spec.tenant = chance.of(kTenants);
  spec.fabric = chance.of(kFabrics);
  if (chance.one_in(2)) spec.quota.push_back({"qp", 1 + chance.below(100)});
  if (chance.one_in(6)) spec.addresses.push_back("10.0.0.1/32");
  if (chance.one_in(6)) {
    spec.owner.pid = machine_.host.start_process(0);
    spec.end_with_owner = chance.one_in(2);
    say("its owner is process " + std::to_string(spec.owner.pid));
  }
  const bool if_absent = chance.one_in(3);
  base::Result<VdevInfo> made = base::fail(EINTR, "interrupted");
  try {
    made = call("create " + text_of(spec), false,
                [&] { return life_->daemon().create_vdev(spec, if_absent); });
  } catch (const End&) {
    model_.doubtful.push_back(spec);
    throw;
  }
  if (!made) return;
  if (if_absent && model_.vdevices.contains(made->id)) return;
  if (made->id <= model_.last_id && model_.gone.contains(made->id))
    throw Failure("the id " + std::to_string(made->id) + " was used before");
  model_.last_id = std::max(model_.last_id, made->id);
  // Lost ones of this name are replaced; others end with their namespace.
  for (auto& [id, other] : model_.vdevices)
    if (other.spec.name == spec.name &&
        (other.spec.netns == spec.netns || other.cookie == made->netns_cookie))
      other.may_be_gone = true;
  Model::Vdevice& its = model_.vdevices[made->id];
  its = {spec, made->netns_cookie, made->ifindex, {}, false, ""};
  if (!spec.quota.empty()) its.qp = spec.quota.front().limit;
  if (spec.end_with_owner) its.owner = spec.owner.pid;
  // What ended meanwhile was not told to the model.
  if (its.owner != 0 && !machine_.host.processes.contains(its.owner)) its.may_be_gone = true;
  if (machine_.host.find_link(its.cookie, its.ifindex) == nullptr) its.may_be_gone = true;
}

void Scenario::remove(Chance& chance) {
  const auto id = any_vdevice(chance);
  if (!id) return;
  try {
    const auto deleted = call("delete " + std::to_string(*id), true, [&] {
      return life_->daemon().delete_vdev("id:" + std::to_string(*id));
    });
    if (!deleted) return;
    model_.vdevices.erase(*id);
    model_.gone.insert(*id);
  } catch (const End&) {
    model_.vdevices.at(*id).may_be_gone = true;
    throw;
  }
}

void Scenario::set_quota(Chance& chance) {
  const auto id = any_vdevice(chance);
  if (!id) return;
  const uint64_t limit = 1 + chance.below(100);
  try {
    const auto set =
        call("quota set " + std::to_string(*id) + " qp=" + std::to_string(limit), true, [&] {
          return life_->daemon().set_quota("id:" + std::to_string(*id), {{"qp", limit}});
        });
    if (set)
      model_.vdevices.at(*id).qp = limit;
    else if (set.error().message().find("did not let the quota be put back") != std::string::npos)
      model_.vdevices.at(*id).qp.reset();
  } catch (const End&) {
    model_.vdevices.at(*id).qp.reset();
    throw;
  }
}

void Scenario::set_labels(Chance& chance) {
  const auto id = any_vdevice(chance);
  if (!id) return;
  const std::string value = std::to_string(chance.below(100));
  const vrdmad::LabelChange change = chance.one_in(4) ? vrdmad::LabelChange{{}, {"team"}}
                                                      : vrdmad::LabelChange{{{"team", value}}, {}};
  try {
    const auto set =
        call("vdev label " + std::to_string(*id) + " team=" + (change.set.empty() ? "" : value),
             true, [&] { return life_->daemon().set_labels("id:" + std::to_string(*id), change); });
    if (set) model_.vdevices.at(*id).team = change.set.empty() ? "" : value;
  } catch (const End&) {
    model_.vdevices.at(*id).team.reset();
    throw;
  }
}

void Scenario::set_budget(Chance& chance) {
  vrdmad::BudgetSpec spec;
  spec.name = chance.one_in(2) ? "t0" : "t1";
  spec.ceilings = {{"qp", 50 + chance.below(20'000)}};
  try {
    const auto set =
        call("budget set " + spec.name + " qp=" + std::to_string(spec.ceilings.front().limit), true,
             [&] { return life_->daemon().set_budget(spec); });
    if (set) model_.ceilings[spec.name] = spec.ceilings.front().limit;
  } catch (const End&) {
    model_.ceilings[spec.name].reset();
    throw;
  }
}

void Scenario::set_fabric(Chance& chance) {
  const std::string name = chance.one_in(2) ? "f0" : chance.one_in(2) ? "tenant/t0" : "tenant/t1";
  const Reach reach = chance.of(kReaches);
  try {
    const auto set = call("fabric set " + name + " --reach " + vrdmad::text_of(reach), true, [&] {
      return life_->daemon().set_fabric({name, reach, {}});
    });
    if (set) model_.reaches[name] = reach;
  } catch (const End&) {
    model_.reaches[name].reset();
    throw;
  }
}

void Scenario::query(Chance& chance) {
  if (chance.one_in(2))
    (void)call("counters", false, [&] { return life_->daemon().counters(""); });
  else
    (void)call("qp list", false, [&] { return life_->daemon().list_queue_pairs(""); });
}

void Scenario::connect(Chance& chance) {
  const auto sockets = life_->broker().session_sockets();
  if (sockets.empty()) return;
  const std::string path = chance.of(sockets);
  say("a program connects to " + path);
  life_->broker().connect(path);
}

void Scenario::change_address(Chance& chance) {
  netns::Link* const link = any_link(chance);
  if (link == nullptr) return;
  const netns::Address one = address(chance.below(kAddresses));
  const bool had = std::erase(link->addresses, one) > 0;
  if (!had) link->addresses.push_back(one);
  say(link->name + " (" + std::to_string(link->ifindex) + ") " + (had ? "loses" : "gets") +
      " 10.0.0." + std::to_string(one.back()));
}

void Scenario::new_link(Chance& chance) {
  if (machine_.host.namespaces.empty()) return;
  auto its = machine_.host.namespaces.begin();
  std::advance(its, static_cast<ptrdiff_t>(chance.below(machine_.host.namespaces.size())));
  const std::string name = chance.of(kNetdevs);
  for (const auto& [ifindex, link] : its->second.links)
    if (link.name == name) return;
  add_link(&its->second, name, chance);
}

void Scenario::end_link(Chance& chance) {
  const netns::Link* const link = any_link(chance);
  if (link == nullptr) return;
  say(link->name + " (" + std::to_string(link->ifindex) + ") ends");
  model_.link_ended(link->ifindex);
  machine_.host.of_cookie(link->netns_cookie)->links.erase(link->ifindex);
}

void Scenario::new_namespace(Chance& chance) {
  const std::string name = chance.of(kNamespaces);
  if (machine_.host.namespaces.contains(name)) return;
  Namespace& made = machine_.host.namespaces[name];
  made.cookie = machine_.host.new_cookie();
  for (const auto& netdev : kNetdevs)
    if (!chance.one_in(4)) add_link(&made, netdev, chance);
}

void Scenario::end_namespace(Chance& chance) {
  const auto found = machine_.host.namespaces.find(chance.of(kNamespaces));
  if (found == machine_.host.namespaces.end()) return;
  say(found->first + " ends");
  for (const auto& [ifindex, link] : found->second.links) model_.link_ended(ifindex);
  machine_.host.namespaces.erase(found);
}

// As soon as nothing is on its way.
void Scenario::check(Chance& chance, int patience) {
  if (calls_ == 0) check_promises(*life_, model_);
  if (calls_ == 0 && life_->at_rest() && model_.doubtful.empty())
    return check_agreement(*life_, model_, machine_.host, false);
  if (patience > 0)
    machine_.host.after(chance.up_to(milliseconds(50)), [this, patience] {
      if (stopping_) return;
      Chance later(static_cast<uint64_t>(patience));
      check(later, patience - 1);
    });
}

void Scenario::act(const Action& action) {
  if (stopping_) {  // after the restart
    machine_.host.after(milliseconds(1), [this, action] { act(action); });
    return;
  }
  Chance chance(action.seed);
  Host& host = machine_.host;
  const bool is_change = action.what == Do::kDelete || action.what == Do::kSetQuota ||
                         action.what == Do::kSetLabels || action.what == Do::kSetBudget ||
                         action.what == Do::kSetFabric;
  const bool is_call = is_change || action.what == Do::kCreate || action.what == Do::kQuery ||
                       action.what == Do::kStartContainer;
  if ((is_change && changing_) || (is_call && calls_ >= kCallsAtOnce)) {
    host.after(milliseconds(10), [this, action] { act(action); });
    return;
  }
  const auto changed_links = [&host](netns::Link* link, auto change) {
    if (link != nullptr) change(*link);
    host.links_changed();
  };
  switch (action.what) {
    case Do::kCreate:
      return create(chance);
    case Do::kDelete:
      return remove(chance);
    case Do::kSetQuota:
      return set_quota(chance);
    case Do::kSetLabels:
      return set_labels(chance);
    case Do::kSetBudget:
      return set_budget(chance);
    case Do::kSetFabric:
      return set_fabric(chance);
    case Do::kQuery:
      return query(chance);
    case Do::kConnect:
      return connect(chance);
    case Do::kEndProgram:
      (void)life_->workers().end_program(chance);
      return;
    case Do::kAddress:
      change_address(chance);
      return host.links_changed();
    case Do::kUpOrDown:
      return changed_links(any_link(chance), [](netns::Link& link) { link.up = !link.up; });
    case Do::kRename:
      return changed_links(any_link(chance), [&](netns::Link& link) {
        if (host.of_cookie(link.netns_cookie)->links.size() == 1) link.name = chance.of(kNetdevs);
      });
    case Do::kMtu:
      return changed_links(any_link(chance),
                           [&](netns::Link& link) { link.mtu = chance.one_in(2) ? 1500 : 9000; });
    case Do::kNewLink:
      new_link(chance);
      return host.links_changed();
    case Do::kEndLink:
      end_link(chance);
      return host.links_changed();
    case Do::kNewNamespace:
      return new_namespace(chance);
    case Do::kEndNamespace:
      end_namespace(chance);
      return host.links_changed();
    case Do::kHideNamespace: {
      const auto found = host.namespaces.find(chance.of(kNamespaces));
      if (found == host.namespaces.end()) return;
      found->second.hidden = !found->second.hidden;
      return say(found->first + (found->second.hidden ? " is hidden" : " is there again"));
    }
    case Do::kStartContainer:
      return start_container(chance);
    case Do::kEndProcess: {
      std::vector<uint32_t> pids;
      for (const auto& [pid, one] : host.processes) pids.push_back(pid);
      if (!pids.empty()) end_process(chance.of(pids));
      return;
    }
    case Do::kKillWorker:
      if (life_->workers().kill_one(chance)) say("a worker is killed");
      return;
    case Do::kStopWorker:
      if (life_->workers().stop_one(chance, chance.up_to(seconds(8)))) say("a worker is stopped");
      return;
    case Do::kObstinateWorkers:
      machine_.workers.refuses_one_in = machine_.workers.refuses_one_in == 0 ? 2 : 0;
      return say(machine_.workers.refuses_one_in == 0 ? "workers refuse nothing"
                                                      : "workers refuse half of all limits");
    case Do::kSlowDisk:
      machine_.disk.longest = machine_.disk.longest == kSlowCommit ? base::Duration(milliseconds(5))
                                                                   : base::Duration(kSlowCommit);
      return say(machine_.disk.longest == kSlowCommit ? "the disk is slow" : "the disk is fast");
    case Do::kFullDisk:
      machine_.disk.full = !machine_.disk.full;
      return say(machine_.disk.full ? "the disk is full" : "the disk has room");
    case Do::kRestart:
      throw End{calls_ > 0};
    case Do::kReboot:
      throw End{true, true};
    case Do::kCrash:
      throw End{true};
    case Do::kCheck:
      return check(chance, 20);
  }
}

void Scenario::start() {
  say("vrdmad starts");
  stopping_ = true;
  life_ = std::make_unique<Life>(machine_);
  stopping_ = false;
}

// All is well again, for long enough.
void Scenario::recover() {
  machine_.disk = {};
  machine_.workers = {};
  for (auto& [name, one] : machine_.host.namespaces) one.hidden = false;
  say("all is well");
  Host& host = machine_.host;
  host.run(&life_->loop(), host.time.now() + kLongEnough);
  // It looks again and again for netdevs that are not there.
  for (const auto end = host.time.now() + seconds(1); !life_->at_rest();)
    if (!host.step(&life_->loop(), end)) break;
  if (!life_->at_rest()) throw Failure("vrdmad does not come to rest");
  check_promises(*life_, model_);
  model_.doubtful.clear();
  check_agreement(*life_, model_, host, true);
}

void Scenario::run(const Plan& plan, std::vector<std::string>* trace) {
  trace_ = trace;
  Host& host = machine_.host;
  begun_ = host.time.now();
  for (const auto& name : kNamespaces) {
    Namespace& made = host.namespaces[name];
    made.cookie = host.new_cookie();
    for (const auto& netdev : kNetdevs) add_link(&made, netdev, host.chance);
  }
  for (const Action& action : plan) host.after(action.at, [this, action] { act(action); });
  try {
    live(host.time.now() + kRunTime);
  } catch (const Failure&) {
    end({true});
    throw;
  }
}

void Scenario::live(base::TimePoint until) {
  start();
  for (;;) {
    try {
      machine_.host.run(&life_->loop(), until);
      recover();
      return end({false});
    } catch (const End& how) {
      end(how);
      start();
    }
  }
}

void Scenario::end(End how) {
  say(how.reboot ? "the host ends" : how.crash ? "vrdmad crashes" : "vrdmad stops");
  stopping_ = true;
  changing_ = false;
  within_ = {};
  if (how.crash && life_ != nullptr) life_->crash();
  life_.reset();
  if (how.reboot) reboot();
}

// Of the namespaces that have names, some are made at once and others later.
void Scenario::reboot() {
  machine_.host.reboot();
  model_.rebooted();
  std::filesystem::remove_all(machine_.directory + "/run");
  for (const auto& name : kNamespaces) {
    if (machine_.host.chance.one_in(2)) continue;
    Namespace& made = machine_.host.namespaces[name];
    made.cookie = machine_.host.new_cookie();
    for (const auto& netdev : kNetdevs)
      if (!machine_.host.chance.one_in(4)) add_link(&made, netdev, machine_.host.chance);
  }
}

}  // namespace vrdma::sim
