#include "vrdmad/admin/translation.h"

#include <algorithm>
#include <chrono>

#include "core/base/printable.h"

namespace vrdma::vrdmad {

using base::printable;

void fill(v1::Vdev& out, const VdevInfo& vdev) {
  out.set_id(vdev.id);
  out.set_name(vdev.name);
  out.set_parent(vdev.parent);
  out.set_tenant(vdev.tenant);
  out.set_fabric(vdev.fabric);
  out.set_reach(text_of(vdev.reach));
  for (const auto& prefix : vdev.peers) out.add_peers(prefix.text());
  out.set_netns(vdev.netns);
  out.set_netns_cookie(vdev.netns_cookie);
  out.set_netdev(printable(vdev.netdev));
  out.set_ifindex(vdev.ifindex);
  out.set_node_guid(vdev.node_guid);
  out.set_port_state(vdev.port_state);
  out.set_parked(vdev.parked);
  out.set_active_mtu(vdev.active_mtu);
  out.set_socket(vdev.socket);
  out.set_sessions(vdev.sessions);
  for (const auto& gid : vdev.gids) {
    auto& row = *out.add_gids();
    row.set_index(gid.index);
    row.set_gid(gid.gid);
    row.set_type(gid.type);
  }
  for (const auto& quota : vdev.quota) {
    auto& row = *out.add_quota();
    row.set_kind(quota.kind);
    row.set_used(quota.used);
    row.set_limit(quota.limit);
  }
  for (const auto& permission : vdev.allowed) out.add_allowed(permission);
  out.set_lost(printable(vdev.lost));
  out.set_unserved(printable(vdev.unserved));
  out.set_limited(vdev.limited);
  out.set_no_direct(vdev.no_direct);
  out.set_gid_layout(vdev.gid_layout);
  for (const auto& prefix : vdev.addresses) out.add_addresses(prefix);
  out.set_addresses_given(vdev.addresses_given);
  out.set_addresses_ignored(vdev.addresses_ignored);
  for (const auto& [reason, regions] : vdev.reached) {
    auto& row = *out.add_reached();
    row.set_reason(reason);
    row.set_regions(regions);
  }
  if (vdev.owner.pid != 0) {
    auto& owner = *out.mutable_owner();
    owner.set_pid(vdev.owner.pid);
    owner.set_start_time(vdev.owner.start_time);
    owner.set_boot_id(vdev.owner.boot_id);
    owner.set_ended(vdev.owner_ended);
  }
  out.set_end_with_owner(vdev.end_with_owner);
  for (const auto& [key, value] : vdev.labels) (*out.mutable_labels())[key] = value;
  for (const auto& container : vdev.containers) {
    auto& row = *out.add_containers();
    row.set_id(container.id);
    row.set_pid(container.init.pid);
  }
}

namespace {

v1::Scope scope_of(BudgetSpec::Scope scope) {
  return scope == BudgetSpec::Scope::kTenant ? v1::TENANT : v1::PARENT;
}

}  // namespace

void fill(v1::Parent& out, const ParentInfo& parent) {
  out.set_name(parent.name);
  out.set_kind(parent.kind);
  out.set_vdevices(parent.vdevices);
  out.set_detail(parent.detail);
  out.set_state(parent.state);
  if (parent.numa_node) out.set_numa_node(*parent.numa_node);
}

void fill(v1::QuotaSetting& out, const QuotaSetting& setting) {
  out.set_kind(setting.kind);
  out.set_limit(setting.limit);
}

void fill(v1::Class& out, const ClassInfo& its) {
  out.set_name(its.name);
  out.set_error(printable(its.error));
  out.set_parent(its.parent);
  out.set_parent_state(its.parent_state);
  if (its.numa_node) out.set_numa_node(*its.numa_node);
  out.set_devices(its.devices);
  out.set_given(its.given);
  out.set_free(its.free);
  for (const auto& setting : its.quota) fill(*out.add_quota(), setting);
  for (const auto& setting : its.max_quota) fill(*out.add_max_quota(), setting);
  out.set_reach(its.reach);
}

void fill(v1::Claim& out, const ClaimInfo& info) {
  out.set_uid(info.claim.uid);
  out.set_namespace_(info.claim.pod_namespace);
  out.set_name(info.claim.name);
  for (size_t i = 0; i < info.claim.shares.size(); ++i) {
    const ClaimShare& share = info.claim.shares[i];
    auto& row = *out.add_shares();
    row.set_id(share.id);
    row.set_class_(share.device_class);
    for (const auto& setting : share.quota) fill(*row.add_quota(), setting);
    row.set_vdevices(info.vdevices[i]);
  }
  for (const auto& [key, value] : info.claim.labels) (*out.mutable_labels())[key] = value;
}

static void fill(v1::ParkedSession& out, const ParkedSession& session) {
  out.set_number(session.number);
  out.set_vdev(session.vdev.name);
  out.set_vdev_id(session.vdev.id);
  out.set_netns(session.vdev.netns);
  out.set_socket(session.socket);
  out.set_arena(session.files.arena);
  out.set_bells(session.files.bells);
  out.set_memory(session.files.memory);
  out.set_doorbell(session.files.doorbell);
  out.set_events(session.files.events);
  out.mutable_channels()->insert(session.files.channels.begin(), session.files.channels.end());
  out.set_pid(session.pid);
  out.set_away(session.away);
  out.set_image(session.image.data(), session.image.size());
  for (const std::string& gid : session.gids) out.add_gids(gid);
  out.set_known_as(session.known_as);
}

void fill(v1::ParkedProcess& out, const ParkedProcess& process) {
  out.set_pid(process.pid);
  out.set_token(process.token);
  for (const ParkedSession& one : process.sessions) fill(*out.add_sessions(), one);
  for (const ParkedSession& one : process.peers) fill(*out.add_peers(), one);
  for (const ParkedConnections& one : process.connections) {
    auto& connections = *out.add_connections();
    connections.set_socket(one.socket);
    connections.mutable_channels()->Add(one.channels.begin(), one.channels.end());
    connections.set_image(one.image.data(), one.image.size());
  }
}

AttachedProcess process_of(const v1::ParkedProcess& process) {
  AttachedProcess attached{process.pid(), process.token(), {}};
  for (const auto& one : process.sessions())
    attached.sessions.push_back({one.number(),
                                 {one.vdev_id(), one.vdev(), one.netns()},
                                 one.socket(),
                                 {one.arena(),
                                  one.bells(),
                                  one.memory(),
                                  one.doorbell(),
                                  one.events(),
                                  {one.channels().begin(), one.channels().end()}},
                                 0,
                                 false,
                                 {one.image().begin(), one.image().end()},
                                 {one.gids().begin(), one.gids().end()},
                                 one.known_as()});
  for (const auto& one : process.connections())
    attached.connections.push_back({one.socket(),
                                    {one.channels().begin(), one.channels().end()},
                                    {one.image().begin(), one.image().end()}});
  return attached;
}

ClaimSpec claim_of(const v1::Claim& claim) {
  ClaimSpec spec{claim.uid(), claim.namespace_(), claim.name(), {}, {}};
  for (const auto& share : claim.shares())
    spec.shares.push_back({share.id(), share.class_(), quota_of(share.quota())});
  spec.labels.insert(claim.labels().begin(), claim.labels().end());
  return spec;
}

BudgetSpec::Scope scope_of(v1::Scope scope) {
  return scope == v1::TENANT ? BudgetSpec::Scope::kTenant : BudgetSpec::Scope::kParent;
}

void fill(v1::Budget& out, const BudgetInfo& budget) {
  out.set_scope(scope_of(budget.scope));
  out.set_name(budget.name);
  out.set_overcommit(budget.overcommit);
  out.set_vdevices(budget.vdevices);
  for (const auto& from : budget.rows) {
    auto& row = *out.add_rows();
    row.set_kind(from.kind);
    if (from.initial) row.set_default_(*from.initial);
    if (from.ceiling) row.set_ceiling(*from.ceiling);
    row.set_given(from.given);
    row.set_used(from.used);
  }
}

void fill(v1::Fabric& out, const FabricInfo& fabric) {
  out.set_name(fabric.spec.name);
  out.set_reach(text_of(fabric.spec.reach));
  for (const auto& prefix : fabric.spec.peers) out.add_peers(prefix.text());
  out.set_vdevices(fabric.vdevices);
  out.set_gids(fabric.gids);
}

void fill(v1::WatchEvent& out, const WatchEvent& event) {
  switch (event.type) {
    case WatchEvent::Type::kAdded:
      out.set_type(v1::WatchEvent::ADDED);
      break;
    case WatchEvent::Type::kChanged:
      out.set_type(v1::WatchEvent::CHANGED);
      break;
    case WatchEvent::Type::kRemoved:
      out.set_type(v1::WatchEvent::REMOVED);
      break;
  }
  fill(*out.mutable_vdev(), event.vdev);
  out.set_reason(printable(event.reason));
}

void fill(v1::Connection& out, const ConnectionRow& row) {
  out.set_vdev(row.vdev.name);
  out.set_vdev_id(row.vdev.id);
  out.set_netns(row.vdev.netns);
  out.set_tenant(row.tenant);
  out.set_fabric(row.fabric);
  out.set_transport(row.transport);
  out.set_state(row.state);
  out.set_active(row.active);
  out.set_service(row.service);
  out.set_service_id(row.service_id);
  out.set_local(row.local);
  out.set_local_port(row.local_port);
  out.set_remote(row.remote);
  out.set_remote_port(row.remote_port);
  out.set_local_qpn(row.local_qpn);
  out.set_remote_qpn(row.remote_qpn);
  out.set_local_id(row.local_id);
  out.set_remote_id(row.remote_id);
  out.set_age_ms(row.age_ms);
  out.set_waiting(row.waiting);
  out.set_backlog(row.backlog);
}

void fill(v1::Activity& out, const ActivityRow& row) {
  out.set_vdev_id(row.vdev_id);
  out.set_sessions(row.sessions);
  out.set_queue_pairs(row.queue_pairs);
  const auto fill_work = [](const ActivityRow::Work& work, auto mutable_work) {
    if (work.requests == 0 && work.bytes == 0) return;
    v1::Work& to = *mutable_work();
    to.set_requests(work.requests);
    to.set_bytes(work.bytes);
  };
  fill_work(row.direct, [&] { return out.mutable_direct(); });
  fill_work(row.worker, [&] { return out.mutable_worker(); });
  for (const auto& [reason, count] : row.refused) {
    auto& refused = *out.add_refused();
    refused.set_reason(reason);
    refused.set_count(count);
  }
  for (const auto& quota : row.usage) {
    auto& usage = *out.add_usage();
    usage.set_kind(quota.kind);
    usage.set_used(quota.used);
    usage.set_limit(quota.limit);
  }
}

void fill(v1::QueuePair& out, const QueuePairRow& row) {
  out.set_vdev(row.vdev.name);
  out.set_vdev_id(row.vdev.id);
  out.set_netns(row.vdev.netns);
  out.set_qpn(row.qpn);
  out.set_pid(row.pid);
  out.set_type(row.type);
  out.set_state(row.state);
  out.set_transport(row.transport);
  out.set_because(row.because);
  out.set_local(row.local);
  out.set_remote(row.remote);
  out.set_remote_qpn(row.remote_qpn);
  out.set_round_trip_us(row.network.round_trip_us);
  out.set_window(row.network.window);
  out.set_unanswered(row.network.unanswered);
  out.set_rate(row.network.rate);
  out.set_packet_seq_err(row.network.losses.packet_seq_err);
  out.set_implied_nak_seq_err(row.network.losses.implied_nak_seq_err);
  out.set_local_ack_timeout_err(row.network.losses.local_ack_timeout_err);
  out.set_rnr_nak_retry_err(row.network.losses.rnr_nak_retry_err);
  out.set_retransmitted(row.network.losses.retransmitted);
  out.set_direct_requests(row.by_program.requests);
  out.set_direct_bytes(row.by_program.bytes);
  out.set_worker_requests(row.by_worker.requests);
  out.set_worker_bytes(row.by_worker.bytes);
}

void fill(v1::Export& out, const ExportRow& row) {
  const ipc::ExportCounts& counts = row.is.counts;
  out.set_vdev(row.vdev.name);
  out.set_vdev_id(row.vdev.id);
  out.set_netns(row.vdev.netns);
  out.set_pid(row.pid);
  out.set_socket(row.is.socket);
  out.set_vmm_connected(row.is.has_vmm);
  out.clear_driver_version();
  if (row.is.driver) out.set_driver_version(*row.is.driver);
  out.set_doorbell_mode(row.is.mode == ipc::DoorbellMode::kTrap ? "trap" : "");
  out.set_doorbells(counts.doorbells);
  out.set_registers(counts.registers);
  out.set_commands(counts.commands);
  out.set_interrupts(counts.interrupts);
  out.set_replaced(counts.replaced);
  out.set_attaches_refused(counts.attaches_refused);
  out.set_commands_refused(counts.commands_refused);
  out.set_doorbells_refused(counts.doorbells_refused);
  out.set_requests_refused(counts.requests_refused);
  out.set_events_lost(counts.events_lost);
}

namespace {

int64_t ms_of(EventRow::Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

EventRow::Time time_of_ms(int64_t ms) {
  // A clock cannot hold every number.
  constexpr int64_t kMost = int64_t{1} << 42;
  return EventRow::Time(std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, kMost)));
}

void fill(v1::Event& out, const EventRow& event) {
  out.set_number(event.number);
  out.set_type(event.type);
  out.set_first_ms(ms_of(event.first));
  out.set_last_ms(ms_of(event.last));
  out.set_count(event.count);
  out.set_vdev(printable(event.vdev.name));
  out.set_vdev_id(event.vdev.id);
  out.set_netns(printable(event.vdev.netns));
  out.set_tenant(printable(event.tenant));
  out.set_who(printable(event.who));
  out.set_pid(event.pid);
  out.set_program(printable(event.program));
  out.set_reason(printable(event.reason));
  out.set_share(printable(event.share));
}

std::string bytes_of(const std::vector<EventRow>& events) {
  v1::ListEventsResponse all;
  for (const auto& event : events) fill(*all.add_events(), event);
  return all.SerializeAsString();
}

std::optional<std::vector<EventRow>> events_of(const std::string& bytes) {
  v1::ListEventsResponse all;
  if (!all.ParseFromString(bytes)) return std::nullopt;
  std::vector<EventRow> events;
  for (const auto& in : all.events()) {
    EventRow& event = events.emplace_back();
    event.number = in.number();
    event.type = in.type();
    event.first = time_of_ms(in.first_ms());
    event.last = time_of_ms(in.last_ms());
    event.count = in.count();
    event.vdev = {in.vdev_id(), in.vdev(), in.netns()};
    event.tenant = in.tenant();
    event.who = in.who();
    event.pid = in.pid();
    event.program = in.program();
    event.reason = in.reason();
    event.share = in.share();
  }
  return events;
}

}  // namespace vrdma::vrdmad
