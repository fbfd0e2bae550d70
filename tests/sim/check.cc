#include "tests/sim/check.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/verbs/mtu.h"
#include "gid/interface.h"
#include "vrdmad/hooks/backend.h"

namespace vrdma::sim {

using vrdmad::BudgetSpec;
using vrdmad::VdevInfo;

namespace {

std::string name_of(const VdevInfo& vdev) {
  return "vdevice " + std::to_string(vdev.id) + " (" + vdev.netns + "/" + vdev.name + ")";
}

bool is_lost(const VdevInfo& vdev) {
  return vdev.port_state == "LOST" || vdev.port_state == "PENDING";
}

uint64_t limit_of(const VdevInfo& vdev, const std::string& kind) {
  for (const auto& row : vdev.quota)
    if (row.kind == kind) return row.limit;
  throw Failure(name_of(vdev) + " has no limit of " + kind);
}

std::set<std::string> gids_of(const VdevInfo& vdev) {
  std::set<std::string> all;
  for (const auto& row : vdev.gids) all.insert(row.gid);
  return all;
}

// The same of a hook's call.
bool take_doubtful_container(const VdevInfo& vdev, Model& model) {
  for (const auto& container : vdev.containers) {
    const auto its = model.containers.find(container.init.pid);
    if (its == model.containers.end() || !its->second.doubtful) return false;
  }
  model.vdevices[vdev.id] = Model::for_containers(vdev.netns, vdev.name);
  return true;
}

// The creation that a crash interrupted, if this may be its vdevice.
bool take_doubtful(const VdevInfo& vdev, Model& model) {
  if (!vdev.containers.empty()) return take_doubtful_container(vdev, model);
  const auto fits = [&](const vrdmad::VdevSpec& spec) {
    return spec.name == vdev.name && spec.netns == vdev.netns;
  };
  const auto found = std::find_if(model.doubtful.begin(), model.doubtful.end(), fits);
  if (found == model.doubtful.end()) return false;
  // Its link may have ended since.
  model.vdevices[vdev.id] = {*found, vdev.netns_cookie, vdev.ifindex, {}, true, "", false, 0};
  // What it replaced has gone with its creation.
  for (auto& [id, other] : model.vdevices)
    if (id != vdev.id && fits(other.spec)) other.may_be_gone = true;
  model.doubtful.erase(found);
  return true;
}

void check_gids(const std::vector<VdevInfo>& list) {
  std::map<std::pair<std::string, std::string>, const VdevInfo*> holders;
  for (const auto& vdev : list)
    for (const auto& gid : gids_of(vdev)) {
      const auto [other, is_new] = holders.emplace(std::pair(vdev.fabric, gid), &vdev);
      if (!is_new)
        throw Failure("GID " + gid + " of fabric " + vdev.fabric + " is that of " + name_of(vdev) +
                      " and of " + name_of(*other->second));
    }
}

void check_budgets(Life& life, const Model& model, const std::vector<VdevInfo>& list) {
  std::map<std::string, std::pair<uint64_t, uint32_t>> given;  // queue pairs, vdevices
  for (const auto& vdev : list) {
    if (is_lost(vdev)) continue;
    auto& [limits, vdevices] = given[vdev.tenant];
    limits += limit_of(vdev, "qp");
    ++vdevices;
  }
  std::map<std::string, std::optional<uint64_t>> ceilings;
  for (const auto& budget : life.daemon().list_budgets(BudgetSpec::Scope::kTenant)) {
    const auto [limits, vdevices] = given[budget.name];
    if (budget.vdevices != vdevices)
      throw Failure("tenant " + budget.name + " has " + std::to_string(vdevices) +
                    " vdevices, its budget says " + std::to_string(budget.vdevices));
    for (const auto& row : budget.rows) {
      if (row.kind != "qp") continue;
      ceilings[budget.name] = row.ceiling;
      if (row.given != limits)
        throw Failure("tenant " + budget.name + " was given " + std::to_string(limits) +
                      " queue pairs, its budget says " + std::to_string(row.given));
      if (row.ceiling && row.given > *row.ceiling)
        throw Failure("tenant " + budget.name + " was given more than its ceiling");
    }
  }
  for (const auto& [tenant, ceiling] : model.ceilings)
    if (ceiling && ceilings[tenant] != ceiling)
      throw Failure("the ceiling of tenant " + tenant + " is not the one that was set");
}

void check_fabrics(Life& life, const Model& model) {
  std::map<std::string, vrdmad::Reach> reaches;
  for (const auto& fabric : life.daemon().list_fabrics())
    reaches[fabric.spec.name] = fabric.spec.reach;
  for (const auto& [name, reach] : model.reaches)
    if (reach && (reaches.contains(name) ? reaches.at(name) : vrdmad::Reach::kHost) != *reach)
      throw Failure("the reach of fabric " + name + " is not the one that was set");
}

// What its link has, as far as no other vdevice has it.
void check_link(const VdevInfo& vdev, const std::vector<VdevInfo>& list, Host& host) {
  const netns::Link* const link = host.find_link(vdev.netns_cookie, vdev.ifindex);
  if (link == nullptr) throw Failure(name_of(vdev) + " has a netdev that does not exist");
  if (vdev.netdev != link->name || (vdev.port_state == "ACTIVE") != link->up ||
      vdev.active_mtu != verbs::roce_mtu(link->mtu))
    throw Failure(name_of(vdev) + " does not have name, state and MTU of its netdev");
  std::set<std::string> possible;
  for (const auto& gid : gid::derive_gids({link->mac, link->loopback, link->addresses}).gids)
    possible.insert(gid.text());
  const std::set<std::string> has = gids_of(vdev);
  for (const auto& gid : has)
    if (!possible.contains(gid))
      throw Failure(name_of(vdev) + " has the GID " + gid + ", which its netdev does not give");
  if (!vdev.addresses.empty()) return;  // it may not use all
  for (const auto& gid : possible) {
    if (has.contains(gid)) continue;
    // Another of the fabric, or of the namespace on the network.
    const bool taken = std::any_of(list.begin(), list.end(), [&](const VdevInfo& other) {
      const bool may_conflict =
          other.fabric == vdev.fabric ||
          (other.netns_cookie == vdev.netns_cookie && other.reach != vrdmad::Reach::kHost &&
           vdev.reach != vrdmad::Reach::kHost);
      return other.id != vdev.id && may_conflict && gids_of(other).contains(gid);
    });
    if (!taken) throw Failure(name_of(vdev) + " lacks the GID " + gid + ", which nobody else has");
  }
}

void check_lost(const VdevInfo& vdev, const Model& model, Host& host) {
  const auto known = model.vdevices.find(vdev.id);
  if (known == model.vdevices.end()) return;
  if (known->second.of_containers) {
    // Its budget or its GIDs may be another's by now.
    const auto netdev = host.routed(vdev.netns_cookie).choose(vdev.netdev);
    if (netdev && vdev.lost.find("netdev") != std::string::npos)
      throw Failure(name_of(vdev) + " is " + vdev.port_state + " (" + vdev.lost + "), and " +
                    *netdev + " is there");
    return;
  }
  const auto named = host.namespaces.find(vdev.netns);
  const uint64_t cookie = known->second.cookie;
  const uint32_t ifindex = known->second.ifindex;
  const bool there =
      named != host.namespaces.end() && !named->second.hidden &&
      (cookie == 0 || named->second.cookie == cookie) &&
      std::any_of(named->second.links.begin(), named->second.links.end(), [&](const auto& link) {
        return ifindex == 0 ? link.second.name == vdev.netdev : link.first == ifindex;
      });
  // Its budget, its GIDs or its name may be another's by now.
  if (there && vdev.lost.find("netns") != std::string::npos)
    throw Failure(name_of(vdev) + " is lost although its netdev is there: " + vdev.lost);
}

const VdevInfo* find(const std::vector<VdevInfo>& list, uint64_t id) {
  for (const auto& vdev : list)
    if (vdev.id == id) return &vdev;
  return nullptr;
}

// Each has what its hook was given, and nothing else.
void check_containers_kept(const std::vector<VdevInfo>& list, const Model& model) {
  for (const auto& vdev : list)
    for (const auto& container : vdev.containers) {
      const auto its = model.containers.find(container.init.pid);
      if (its == model.containers.end())
        throw Failure(name_of(vdev) + " is of a container that nobody has started");
      if (its->second.lives && its->second.netns != vdev.netns_cookie)
        throw Failure(name_of(vdev) + " is of " + container.id + ", which is in another namespace");
      if (its->second.vdevice && *its->second.vdevice != vdev.id)
        throw Failure(name_of(vdev) + " is of " + container.id + ", which has another one");
    }
  for (const auto& [pid, one] : model.containers) {
    if (!one.lives || !one.vdevice) continue;
    const VdevInfo* const vdev = find(list, *one.vdevice);
    if (vdev != nullptr && std::none_of(vdev->containers.begin(), vdev->containers.end(),
                                        [&](const auto& has) { return has.id == one.id; }))
      throw Failure(name_of(*vdev) + " is not of " + one.id + ", to which it was given");
  }
}

// None has ended, and those of a pod share. Of one that waits for its netdev, the daemon finds the
// end of what it could not watch with the next look.
void check_containers(const std::vector<VdevInfo>& list, const Model& model, bool long_enough) {
  std::map<uint64_t, const VdevInfo*> shared;  // by the cookie of the pod's namespace
  for (const auto& vdev : list) {
    const bool has_looked = long_enough || !is_lost(vdev);
    if (vdev.end_with_owner && vdev.owner_ended && has_looked)
      throw Failure(name_of(vdev) + " is there, and its owner has ended");
    for (const auto& container : vdev.containers)
      if (has_looked && !model.containers.at(container.init.pid).lives)
        throw Failure(name_of(vdev) + " is of " + container.id + ", which has ended");
    if (vdev.containers.empty() || vdev.labels.at(vrdmad::HookBackend::kClassLabel) != kSharedClass)
      continue;
    const auto [other, is_new] = shared.emplace(vdev.netns_cookie, &vdev);
    if (!is_new)
      throw Failure("the containers of a pod have " + name_of(vdev) + " and " +
                    name_of(*other->second));
  }
}

// By the domains of Isolation::kTenant.
std::string domain_of(const vrdmad::AddVdevice& vdev) { return vdev.tenant + " " + vdev.fabric; }

void check_workers(Life& life, const std::vector<VdevInfo>& list) {
  std::map<uint64_t, const KnownVdevice*> known;
  std::map<std::string, size_t> members, domains;
  for (const auto* worker : life.workers().known())
    for (const auto& [id, vdevice] : *worker) {
      if (!known.emplace(id, &vdevice).second)
        throw Failure("vdevice " + std::to_string(id) + " is in two workers");
      ++domains[domain_of(vdevice.added)];
    }
  for (const auto& vdev : list) {
    if (is_lost(vdev)) continue;
    ++members[vdev.tenant + " " + vdev.fabric];
    const auto found = known.find(vdev.id);
    if (found == known.end()) continue;
    const KnownVdevice its = *found->second;
    known.erase(found);
    std::set<std::string> gids;
    for (const auto& gid : its.gids)
      if (!gid.is_unspecified()) gids.insert(gid.text());
    const auto qp = its.limits.find(provisioning::Kind::kQp);
    const char* what = gids != gids_of(vdev)                              ? "GIDs"
                       : its.port.active != (vdev.port_state == "ACTIVE") ? "port"
                       : verbs::roce_mtu(its.port.mtu) != vdev.active_mtu ? "MTU"
                       : qp != its.limits.end() && qp->second != limit_of(vdev, "qp")
                           ? "limit of queue pairs"
                       : its.added.limited != vdev.limited                              ? "pace"
                       : its.added.ways.network != (vdev.reach != vrdmad::Reach::kHost) ? "reach"
                                                                                        : nullptr;
    if (what != nullptr) throw Failure(name_of(vdev) + ": its worker has another " + what);
  }
  if (!known.empty())
    throw Failure("a worker has vdevice " + std::to_string(known.begin()->first) +
                  ", which does not exist");
  for (const auto& [domain, count] : domains)
    if (members[domain] != count)
      throw Failure("the worker of '" + domain + "' has " + std::to_string(count) + " of its " +
                    std::to_string(members[domain]) + " vdevices");
}

void check_watcher(Life& life, const std::vector<VdevInfo>& list) {
  auto known = life.watcher().known();
  for (const auto& vdev : list) {
    const auto found = known.find(vdev.id);
    if (found == known.end()) throw Failure("a watcher has not heard of " + name_of(vdev));
    const VdevInfo& its = found->second;
    if (its.port_state != vdev.port_state || its.netdev != vdev.netdev || its.reach != vdev.reach ||
        gids_of(its) != gids_of(vdev) ||
        (!is_lost(vdev) && limit_of(its, "qp") != limit_of(vdev, "qp")))
      throw Failure("a watcher believes something else of " + name_of(vdev));
    known.erase(found);
  }
  if (!known.empty())
    throw Failure("a watcher believes that " + name_of(known.begin()->second) + " exists");
}

void check_leftovers(Life& life, const std::vector<VdevInfo>& list) {
  std::set<uint64_t> active, held;  // namespaces, by cookie
  size_t vdevices = 0;
  for (const auto& vdev : list) {
    held.insert(vdev.netns_cookie);
    if (is_lost(vdev)) continue;
    active.insert(vdev.netns_cookie);
    ++vdevices;
  }
  if (life.links().watches() != vdevices)
    throw Failure(std::to_string(life.links().watches()) + " links are watched for " +
                  std::to_string(vdevices) + " vdevices");
  const size_t sockets = vdevices + active.size();  // and one of rdma_cm in each namespace
  if (life.broker().listeners() != sockets)
    throw Failure(std::to_string(life.broker().listeners()) + " sockets instead of " +
                  std::to_string(sockets));
  for (const char* kind : {"/netns", "/sysfs"})
    for (const auto& entry : std::filesystem::directory_iterator(life.run_dir() + kind))
      if (!held.contains(std::stoull(entry.path().filename().string())))
        throw Failure("the directory " + entry.path().string() + " is of no vdevice");
}

}  // namespace

void check_promises(Life& life, Model& model) {
  const auto list = life.daemon().list_vdevs();
  std::set<uint64_t> ids;
  for (const auto& vdev : list) {
    ids.insert(vdev.id);
    if (model.gone.contains(vdev.id)) throw Failure(name_of(vdev) + " was deleted, and is there");
    if (!model.vdevices.contains(vdev.id) && !take_doubtful(vdev, model))
      throw Failure(name_of(vdev) + " is there, and nobody has created it");
    Model::Vdevice& its = model.vdevices.at(vdev.id);
    if (its.spec.name != vdev.name || (!its.of_containers && its.spec.netns != vdev.netns))
      throw Failure(name_of(vdev) + " was created as " + its.spec.netns + "/" + its.spec.name);
    if (its.qp && !is_lost(vdev) && limit_of(vdev, "qp") != *its.qp)
      throw Failure(name_of(vdev) + " has " + std::to_string(limit_of(vdev, "qp")) +
                    " queue pairs instead of the " + std::to_string(*its.qp) + " that were set");
    if (const auto team = vdev.labels.find("team");
        its.team && *its.team != (team != vdev.labels.end() ? team->second : ""))
      throw Failure(name_of(vdev) + " has not the label team=" + *its.team);
    if (its.cookie == 0 && !its.of_containers && !is_lost(vdev)) {
      its.cookie = vdev.netns_cookie;
      its.ifindex = vdev.ifindex;
    }
    model.last_id = std::max(model.last_id, vdev.id);
  }
  for (const auto& [id, one] : model.vdevices)
    if (!one.may_be_gone && (!one.of_containers || model.has_container(id)) && !ids.contains(id))
      throw Failure("vdevice " + std::to_string(id) + " (" + one.spec.netns + "/" + one.spec.name +
                    ") has gone, and nothing has ended it");
  check_containers_kept(list, model);
  check_gids(list);
}

void check_agreement(Life& life, Model& model, Host& host, bool long_enough) {
  const auto list = life.daemon().list_vdevs();
  std::set<uint64_t> ids;
  for (const auto& vdev : list) ids.insert(vdev.id);
  // It has ended, and the disk has it.
  std::erase_if(model.vdevices, [&](const auto& entry) {
    const bool gone = !ids.contains(entry.first);
    if (gone) model.gone.insert(entry.first);
    return gone;
  });
  check_containers(list, model, long_enough);
  check_budgets(life, model, list);
  check_fabrics(life, model);
  for (const auto& vdev : list)
    if (!is_lost(vdev))
      check_link(vdev, list, host);
    else if (long_enough)
      check_lost(vdev, model, host);
  check_workers(life, list);
  check_watcher(life, list);
  check_leftovers(life, list);
}

}  // namespace vrdma::sim
