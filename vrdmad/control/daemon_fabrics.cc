// Fabrics: what they reach, which peers they have, and whose addresses conflict on the network.
//
// On the network a vdevice is the address of its netdev, and UDP port 4791 there (RoCE v2, IBTA
// annex A17) belongs to one vdevice of a network namespace. So two vdevices of a namespace cannot
// have the same GID in two fabrics that both reach the network. Such a vdevice is not created, and
// such a fabric is not set to reach the network; an address that appears later gives no GID, and is
// tried again when the other vdevice does not have it any more. Within a fabric GIDs are unique
// anyway (gid/registry.h). Equal addresses in two namespaces of one segment cannot be seen here.
#include <spdlog/spdlog.h>

#include "core/base/name.h"
#include "core/base/printable.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

// A fabric that an operator named, or that of a tenant. That of a vdevice without either ends with
// it.
Result<void> check_fabric(const std::string& name) {
  static const std::string kTenant = "tenant/", kVdevice = "vdev/";
  if (name.starts_with(kVdevice))
    return fail(EINVAL, "fabric '" + base::printable(name) +
                            "' is that of one vdevice: create the vdevice with --fabric or "
                            "--tenant");
  if (name.starts_with(kTenant) && base::is_group_name(name.substr(kTenant.size()))) return {};
  return check_group("the fabric", name);
}

}  // namespace

Result<void> Daemon::restore_fabrics() {
  auto all = store_.fabrics();
  if (!all) return pass(std::move(all.error()));
  for (const auto& spec : *all) fabrics_[spec.name] = spec;
  return {};
}

FabricSpec Daemon::settings_of(const std::string& fabric) const {
  const auto set = fabrics_.find(fabric);
  return set != fabrics_.end() ? set->second : FabricSpec{fabric};
}

bool Daemon::is_peer(const std::string& fabric, const verbs::Gid& gid) const {
  return reaches_network(fabric) &&
         (gid::permits(fabrics_.at(fabric).peers, gid) || gids_.holder(fabric, gid) != nullptr);
}

void Daemon::set(const FabricSpec& settings) {
  if (settings == FabricSpec{settings.name})
    fabrics_.erase(settings.name);
  else
    fabrics_[settings.name] = settings;
}

std::map<std::string, FabricInfo> Daemon::fabrics() const {
  std::map<std::string, FabricInfo> all;
  const auto at = [&](const std::string& name) -> FabricInfo& {
    FabricInfo& one = all[name];
    one.spec = settings_of(name);
    return one;
  };
  for (const auto& [name, settings] : fabrics_) at(name);
  for (const auto& [id, record] : records_) {
    FabricInfo& one = at(record->fabric);
    ++one.vdevices;
    one.gids += static_cast<uint32_t>(record->gids.gids().size());
  }
  for (const auto& [id, lost] : lost_) ++at(fabric_of(lost.vdev)).vdevices;
  return all;
}

std::vector<FabricInfo> Daemon::list_fabrics() {
  return call([&] {
    std::vector<FabricInfo> list;
    for (auto& [name, fabric] : fabrics()) list.push_back(fabric);
    return list;
  });
}

Result<FabricInfo> Daemon::set_fabric(const FabricChange& change) {
  const std::lock_guard one_at_a_time(changes_);
  FabricSpec before, after;
  auto begun = call([&]() -> Result<std::future<Result<void>>> {
    if (auto ok = check_fabric(change.name); !ok) return pass(std::move(ok.error()));
    before = after = settings_of(change.name);
    if (change.reach) after.reach = *change.reach;
    if (change.peers) after.peers = *change.peers;
    if (after.peers.size() > Ways::kMostPeers)
      return fail(EINVAL, "a fabric has at most " + std::to_string(Ways::kMostPeers) +
                              " prefixes of peers, not " + std::to_string(after.peers.size()));
    if (after.reach != Reach::kHost) {
      for (const uint64_t id : directory_.in_fabric(change.name))
        if (const Record* const record = find(id))
          if (auto ok = check_network(*record, record->gids.gids()); !ok)
            return pass(std::move(ok.error()));
      // No vdevice gets a conflicting address while the setting is written.
      set(after);
    }
    return outside_.writer->write(after);
  });
  if (!begun) return pass(std::move(begun.error()));
  auto stored = wait_for(std::move(*begun));
  return call([&]() -> Result<FabricInfo> {
    set(stored ? after : before);
    show_settings(change.name);
    if (!stored)
      return pass(std::move(stored.error()),
                  "the settings of fabric '" + change.name + "' are unchanged");
    spdlog::info("fabric {}: its reach is {}, its peers are {}", change.name, text_of(after.reach),
                 text_of(after.peers));
    const auto all = fabrics();
    const auto its = all.find(change.name);
    return its != all.end() ? its->second : FabricInfo{after};
  });
}

void Daemon::show_settings(const std::string& fabric) {
  const FabricSpec settings = settings_of(fabric);
  std::set<uint64_t> namespaces;
  for (const uint64_t id : directory_.in_fabric(fabric)) {
    Record* const record = find(id);
    if (record == nullptr) {  // it is lost
      tell(WatchEvent::Type::kChanged, info(lost_.at(id)), "fabric changed");
      continue;
    }
    namespaces.insert(record->link.netns_cookie);
    if (std::exchange(record->settings, settings) == settings) continue;
    if (record->cm != nullptr) record->cm->set_island(record->island());
    if (WorkerEnd* const worker = workers_.find(record->domain))
      worker->send(SetWays{id, ways_of(settings)});
    if (record->reaches_network()) {
      join_for_cm(*record, false);
    } else {
      record->groups.clear();
      record->on_network.clear();
    }
    tell(WatchEvent::Type::kChanged, info(*record), "fabric changed");
  }
  if (settings.reach != Reach::kHost) return;
  for (const uint64_t cookie : namespaces) retry_conflicts(cookie);
}

Daemon::Holders Daemon::others_on_network(const Record& record) const {
  Holders holders;
  for (const uint64_t id : directory_.in_netns(record.link.netns_cookie)) {
    const auto other = records_.find(id);
    if (other == records_.end() || other->second->fabric == record.fabric) continue;
    if (!reaches_network(other->second->fabric)) continue;
    for (const auto& gid : other->second->gids.gids()) holders.emplace(gid, other->second.get());
  }
  return holders;
}

std::string Daemon::conflict(const Record& record, const verbs::Gid& gid, const Record& other) {
  return "GID " + gid.text() + " of vdevice " + record.label + " in fabric " + record.fabric +
         " is held by vdevice " + other.label + " in fabric " + other.fabric +
         " of the same network namespace, and on the network an address belongs to one vdevice: "
         "use an interface with other addresses, or `vrdmactl fabric set " +
         other.fabric + " --reach host`";
}

Result<void> Daemon::check_network(const Record& record,
                                   const std::vector<verbs::Gid>& gids) const {
  const Holders others = others_on_network(record);
  for (const auto& gid : gids)
    if (const auto other = others.find(gid); other != others.end())
      return fail(EADDRINUSE, conflict(record, gid, *other->second));
  return {};
}

std::vector<verbs::Gid> Daemon::without_conflicts(Record& record,
                                                  const std::vector<verbs::Gid>& gids) {
  Holders others;
  if (reaches_network(record.fabric)) others = others_on_network(record);
  std::vector<verbs::Gid> allowed;
  std::set<verbs::Gid> conflicting;
  for (const auto& gid : gids) {
    const auto other = others.find(gid);
    if (other == others.end()) {
      allowed.push_back(gid);
      continue;
    }
    conflicting.insert(gid);
    if (record.conflicting.contains(gid)) continue;
    ++conflicts_on_network_;
    warn_of_address(record, conflict(record, gid, *other->second));
  }
  record.conflicting = std::move(conflicting);
  return allowed;
}

void Daemon::retry_conflicts(uint64_t netns_cookie) {
  for (const uint64_t id : directory_.in_netns(netns_cookie)) {
    const Record* const record = find(id);
    if (record != nullptr && !record->conflicting.empty())
      loop_.post([this, id] { apply_again(id, kAddressFree); });
  }
}

}  // namespace vrdma::vrdmad
