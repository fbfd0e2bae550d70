// The addresses of vdevices on the network.
//
// An address has its sockets while a process uses its vdevice, whose fabric reaches the network:
// from the first queue pair with a peer on another host, or from the first process that uses
// rdma_cm or has queue pair 1. The broker opens them in the namespace of such a process. They
// remain when the worker ends: the next one gets the same, with what came meanwhile. The socket of
// a multicast group is open while the worker has a queue pair that is attached to it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;
using verbs::Gid;

namespace {
// Each has two sockets with buffers, which strangers can fill.
constexpr size_t kMostAddresses = 16;
constexpr size_t kMostTries = 4;  // by processes, which may have ended
// A program can join and leave without end, and each time the broker enters its namespace.
constexpr uint64_t kJoinsPerSecond = 16, kJoinsAtOnce = 2 * transport::roce::Network::kMostGroups;
// Between two attempts at an address that failed: each asks the broker. By address, since not every
// GID is one: that which is derived from the MAC may have no IPv6 address.
constexpr auto kPause = std::chrono::seconds(1);

std::vector<const Caller*> pointers_to(const std::vector<std::shared_ptr<Caller>>& users) {
  std::vector<const Caller*> all;
  for (const auto& user : users) all.push_back(user.get());
  return all;
}

// Not a GID that is derived from the MAC and is no address, and not before duplicate address
// detection has ended.
bool can_be_bound(const netns::Link& link, const Gid& gid) {
  const auto is_in = [&gid](const std::vector<netns::Address>& list) {
    return std::find(list.begin(), list.end(), gid.bytes) != list.end();
  };
  return is_in(link.addresses) && !is_in(link.tentative);
}
}  // namespace

Result<const Daemon::OnNetwork*> Daemon::join_network(Record& record, const Gid& address,
                                                      const Callers& callers) {
  if (!record.reaches_network()) return fail(EPERM, "its fabric does not reach the network");
  const auto& gids = record.gids.gids();
  if (std::find(gids.begin(), gids.end(), address) == gids.end())
    return fail(EADDRNOTAVAIL, "it has no GID " + address.text());
  if (const auto known = record.on_network.find(address); known != record.on_network.end())
    return &known->second;
  if (record.on_network.size() >= kMostAddresses)
    return fail(ENFILE, std::to_string(kMostAddresses) + " of its addresses are on the network");
  Result<RoceSockets> made = fail(ESRCH, "no process uses it");
  const uint32_t ifindex = record.link.ifindex;
  OnNetwork joined;
  for (size_t i = 0; i < std::min(callers.size(), kMostTries); ++i) {
    made = callers[i]->roce_sockets(address, ifindex);
    if (made && settings_.source_ports > 0) {
      auto sources = callers[i]->source_sockets(address, ifindex, settings_.source_ports);
      if (sources)
        joined.sources = std::move(*sources);
      else
        made = pass(std::move(sources).error());
    }
    if (made || made.error().code() == EADDRINUSE || made.error().code() == EADDRNOTAVAIL) break;
  }
  if (!made) return pass(std::move(made).error());
  auto gsi = gsi_network_.add(record.fabric, address, std::move(made->gsi), std::move(made->routes),
                              ifindex);
  if (!gsi) return pass(std::move(gsi).error());
  joined.data = std::move(made->data);
  joined.gsi = std::move(*gsi);
  record.off_network_until.erase(address);
  return &record.on_network.emplace(address, std::move(joined)).first->second;
}

Result<Fd> Daemon::join_group(Record& record, const Gid& group, const Callers& callers) {
  if (!record.reaches_network()) return fail(EPERM, "its fabric does not reach the network");
  if (const auto known = record.groups.find(group); known != record.groups.end())
    return known->second.duplicate();
  if (record.groups.size() >= transport::roce::Network::kMostGroups)
    return fail(ENFILE, "it is in " + std::to_string(record.groups.size()) + " multicast groups");
  record.joins.change(loop_.now(), kJoinsPerSecond, kJoinsAtOnce);
  Result<Fd> made = fail(ESRCH, "no process uses it");
  for (size_t i = 0; !made && i < std::min(callers.size(), kMostTries); ++i) {
    if (!record.joins.take(loop_.now()))
      return fail(EAGAIN, "its programs join multicast groups too often");
    made = callers[i]->group_socket(group, record.link.ifindex);
  }
  if (!made) return pass(std::move(made).error());
  return record.groups.emplace(group, std::move(*made)).first->second.duplicate();
}

bool Daemon::gives_socket_later(Record& record, const Gid& address) {
  record.awaited.erase(address);
  auto& until = record.off_network_until;
  const auto now = loop_.now();
  std::erase_if(until, [now](const auto& one) { return one.second <= now; });
  const auto pause = until.find(address);
  if (pause == until.end()) return false;
  record.awaited[address] =
      loop_.after(pause->second - now, [this, id = record.id, address = address] {
        Record* const its = find(id);
        if (its == nullptr) return;
        its->awaited.erase(address);
        if (workers_.find(its->domain) != nullptr) give_socket(*its, address);
      });
  return true;
}

void Daemon::give_socket(Record& record, const Gid& address) {
  if (gives_socket_later(record, address)) return;
  const auto users = furnisher_.callers_of(record.id);
  const Callers callers = pointers_to(users);
  RoceSocket answer{record.id, address, 0};
  Beside beside;
  const auto give = [&beside](Result<Fd> one) -> Result<void> {
    if (!one) return pass(std::move(one).error());
    beside.push_back(std::move(*one));
    return {};
  };
  Result<void> given = fail(EAGAIN, "too many addresses failed a moment ago");
  auto& until = record.off_network_until;
  if (address.is_multicast()) {
    given = give(join_group(record, address, callers));
  } else if (until.size() < verbs::kMaxGids) {
    auto joined = join_network(record, address, callers);
    given = joined ? give((*joined)->data.duplicate()) : pass(std::move(joined).error());
    for (size_t i = 0; given && i < (*joined)->sources.size(); ++i, ++answer.sources) {
      const Fd& source = (*joined)->sources[i];
      if (!source.valid()) continue;
      answer.has_sources |= 1u << i;
      given = give(source.duplicate());
    }
    if (!given) until[address] = loop_.now() + kPause;
    if (!given && given.error().code() == EADDRNOTAVAIL && record.unbound.size() < verbs::kMaxGids)
      record.unbound.insert(address);
  }
  if (!given) {
    answer = {record.id, address, given.error().code()};
    beside.clear();
    warn_of_network(record, given.error());
  }
  workers_.find(record.domain)->send(Parcel{answer, std::move(beside)});
}

// After a change of the netdev. An address that was wanted may have become one since, because
// duplicate address detection has ended or the address was added.
void Daemon::retry_network(Record& record) {
  if (!record.reaches_network()) return;
  const bool has_worker = workers_.find(record.domain) != nullptr;
  const std::set<Gid> unbound = has_worker ? record.unbound : std::set<Gid>();
  for (const Gid& gid : unbound) {
    if (!can_be_bound(record.link, gid)) continue;
    record.unbound.erase(gid);
    record.off_network_until.erase(gid);
    give_socket(record, gid);
  }
  join_for_cm(record, false);
}

// Requests come to the addresses of the vdevice while a process uses rdma_cm, or has queue pair 1.
void Daemon::join_for_cm(Record& record, bool at_once) {
  if (!record.reaches_network()) return;
  auto users = cm_.callers_of(record.link.netns_cookie);
  if (record.gsi != nullptr && record.gsi->is_open())
    for (auto& user : furnisher_.callers_of(record.id)) users.push_back(std::move(user));
  if (!users.empty()) join_addresses(record, pointers_to(users), at_once);
}

// By processes that use rdma_cm. A tenant can change its netdev, and send requests, without end:
// unless `at_once`, an address that failed waits for kPause.
void Daemon::join_addresses(Record& record, const Callers& callers, bool at_once) {
  const auto now = loop_.now();
  auto& until = record.off_network_until;
  std::erase_if(until, [now](const auto& one) { return one.second <= now; });
  size_t failed = 0;
  for (const Gid& gid : record.gids.gids()) {
    if (record.on_network.contains(gid) || (!at_once && until.contains(gid)) ||
        !can_be_bound(record.link, gid))
      continue;
    const auto joined = join_network(record, gid, callers);
    if (joined) continue;
    until[gid] = now + kPause;
    warn_of_network(record, joined.error());
    if (at_once && ++failed == kMostAddresses) return;
  }
}

bool Daemon::on_cm_user(uint64_t netns, const Caller& caller, bool first) {
  bool reaches_network = false;
  for (const uint64_t id : directory_.in_netns(netns)) {
    Record* const record = find(id);
    if (record == nullptr || !record->reaches_network()) continue;
    reaches_network = true;
    join_addresses(*record, {&caller}, first);
  }
  return reaches_network;
}

void Daemon::on_cm_user_left(uint64_t netns) {
  for (const uint64_t id : directory_.in_netns(netns))
    if (Record* const record = find(id)) leave_network(*record);
}

// A program may ask without bound.
void Daemon::warn_of_network(Record& record, const base::Error& why) {
  if (std::has_single_bit(++record.off_network))
    spdlog::warn("vdevice {}: no packets from other hosts and to them: {}", record.label,
                 why.message());
}

void Daemon::leave_network(Record& record) {
  // Of most vdevices, whenever a session ends.
  if (record.on_network.empty() && record.groups.empty() && record.unbound.empty()) return;
  if (!furnisher_.callers_of(record.id).empty()) return;
  record.groups.clear();
  record.unbound.clear();
  if (!cm_.is_used(record.link.netns_cookie)) record.on_network.clear();
}

}  // namespace vrdma::vrdmad
