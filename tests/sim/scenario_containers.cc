// Containers: their processes, and the hooks that ask for their vdevices.
#include <algorithm>
#include <utility>

#include "tests/sim/scenario.h"

namespace vrdma::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;
using vrdmad::VdevSpec;

namespace {

constexpr const char* kNetdev = "e0";
// Classes of containers. One waits for a netdev of that name, the other for any.
struct Class {
  std::string name, netdev, tenant, fabric;
};
const std::vector<Class> kClasses{{kSharedClass, kNetdev, "t0", ""}, {"c1", "", "", "f0"}};
constexpr uid_t kUser = 1000;
constexpr uint64_t kMostOfUser = 3, kMostContainers = 6;

}  // namespace

// In a new namespace, or beside others in theirs. A runtime may make the netdev later.
void Scenario::start_container(Chance& chance) {
  Host& host = machine_.host;
  std::vector<uint64_t> pods;
  for (const auto& [name, one] : host.namespaces)
    if (one.of_processes) pods.push_back(one.cookie);
  uint64_t living = 0;
  for (const auto& [pid, one] : model_.containers) living += one.lives ? 1 : 0;
  if (living >= kMostContainers) return;
  uint64_t netns = 0;
  if (!pods.empty() && chance.one_in(2)) {
    netns = chance.of(pods);
  } else {
    netns = host.new_cookie();
    Namespace& made = host.namespaces["pod" + std::to_string(netns)];
    made.cookie = netns;
    made.of_processes = true;
    if (!chance.one_in(3))
      add_link(&made, kNetdev, chance);
    else
      host.after(chance.up_to(seconds(1)), [this, netns, seed = chance.below(UINT64_MAX)] {
        Namespace* const its = machine_.host.of_cookie(netns);
        if (its == nullptr || !its->links.empty()) return;
        Chance later(seed);
        add_link(its, kNetdev, later);
        machine_.host.links_changed();
      });
  }
  const uint32_t pid = host.start_process(netns);
  model_.containers[pid] = {"container" + std::to_string(pid), chance.of(kClasses).name, netns,
                            std::nullopt};
  call_hook(pid, chance);
}

void Scenario::call_hook(uint32_t pid, Chance& chance) {
  Host& host = machine_.host;
  if (!host.processes.contains(pid)) return;
  const Model::Container asked = model_.containers.at(pid);
  const Class& its = *std::find_if(kClasses.begin(), kClasses.end(), [&](const Class& one) {
    return one.name == asked.device_class;
  });
  using Backend = vrdmad::HookBackend;
  VdevSpec spec;
  spec.name = "vrdma0";
  spec.netns = "pid:" + std::to_string(pid);
  spec.netdev = its.netdev;
  spec.tenant = its.tenant;
  spec.fabric = its.fabric;
  spec.labels = {{Backend::kContainerLabel, asked.id}, {Backend::kClassLabel, its.name}};
  spec.containers = {{asked.id, {pid, host.processes.at(pid).start_time, ""}}};
  Backend::Terms terms;
  terms.shared = its.name == kSharedClass;
  terms.most = kMostOfUser;
  if (chance.one_in(2)) {
    terms.owner = kUser;
    spec.labels[Backend::kUserLabel] = std::to_string(kUser);
  }
  base::Result<Backend::Given> given = base::fail(EINTR, "interrupted");
  model_.containers.at(pid).doubtful = true;
  try {
    given = call("a hook wants a vdevice of class " + asked.device_class + " for process " +
                     std::to_string(pid) + " in the namespace " + std::to_string(asked.netns),
                 false, [&] {
                   return life_->daemon().give(spec, netns::Netns{base::Fd(), asked.netns}, terms);
                 });
  } catch (const End&) {
    // The hook asks the next daemon, or its container is removed.
    const bool again = chance.one_in(2);
    host.after(chance.up_to(seconds(3)), [this, pid, again, seed = chance.below(UINT64_MAX)] {
      if (again)
        call_hook_again(pid, seed);
      else
        end_process(pid);
    });
    throw;
  }
  model_.containers.at(pid).doubtful = false;
  if (!given) return end_process(pid);
  // An operator may have deleted it meanwhile.
  if (!model_.gone.contains(given->vdevice)) {
    model_.containers.at(pid).vdevice = given->vdevice;
    Model::Vdevice& vdevice = model_.vdevices[given->vdevice];
    if (!vdevice.of_containers) vdevice = Model::for_containers(spec.netns, given->name);
  }
  if (!chance.one_in(6)) return;
  say("the hook of process " + std::to_string(pid) + " fails");
  model_.containers.at(pid).vdevice.reset();
  life_->daemon().take_back(given->vdevice, spec.containers.front());
  end_process(pid);
}

void Scenario::call_hook_again(uint32_t pid, uint64_t seed) {
  if (stopping_ || calls_ >= kCallsAtOnce) {
    machine_.host.after(milliseconds(10), [this, pid, seed] { call_hook_again(pid, seed); });
    return;
  }
  Chance chance(seed);
  call_hook(pid, chance);
}

void Scenario::end_process(uint32_t pid) {
  if (!machine_.host.processes.contains(pid)) return;
  say("process " + std::to_string(pid) + " ends");
  machine_.host.end_process(pid);
  model_.process_ended(pid);
}

}  // namespace vrdma::sim
