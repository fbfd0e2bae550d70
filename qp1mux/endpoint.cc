#include "qp1mux/endpoint.h"

#include <algorithm>
#include <string>

#include "core/wire/rdma_cm.h"
#include "qp1mux/exchange.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {

bool EndpointState::owns(const verbs::Gid& gid) const {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

std::shared_ptr<ListenerState> EndpointState::listener(uint64_t service_id,
                                                       const verbs::Gid& gid) const {
  auto it = listeners.find({service_id, gid});
  if (it == listeners.end())
    it = listeners.find({service_id, verbs::Gid::unspecified(gid.is_ipv4_mapped())});
  if (it == listeners.end()) it = listeners.find({service_id, std::nullopt});
  return it == listeners.end() ? nullptr : it->second;
}

bool EndpointState::named_rightly(uint64_t service_id, const uint8_t* private_data,
                                  const verbs::Gid& gid) {
  if (!wire::port_space(service_id)) return true;
  const auto ends = wire::ip_ends(private_data);
  return !ends || ends->source == gid;
}

base::Result<void> EndpointState::refuse_gid(const verbs::Gid& gid) {
  ++counters.refused;
  return base::fail(EADDRNOTAVAIL, gid.text() + " is not an address of vdevice " + setup.vdevice);
}

base::Result<void> EndpointState::check_qpn(uint32_t qpn) {
  if (setup.owns_qpn(qpn)) return {};
  ++counters.refused;
  return base::fail(
      EPERM, "queue pair " + std::to_string(qpn) + " does not belong to vdevice " + setup.vdevice);
}

// In a message of rdma_cm that it sends from its address `local`.
base::Result<void> EndpointState::check_names(const verbs::Gid& local, const wire::Mad& mad) {
  const auto check_guid = [&](uint64_t guid) -> base::Result<void> {
    if (guid == setup.node_guid) return {};
    ++counters.refused;
    return base::fail(EPERM, "the node GUID is not that of vdevice " + setup.vdevice);
  };
  const auto attribute = wire::cm_attribute(mad.header);
  if (attribute == wire::CmAttribute::kReq) {
    const auto& req = mad.as<wire::CmReq>();
    if (auto ok = check_guid(req.ca_guid); !ok) return ok;
    if (req.primary.local_gid != local) return refuse_gid(req.primary.local_gid);
    if (!named_rightly(req.service_id, req.private_data, local))
      return refuse_gid(wire::ip_ends(req.private_data)->source);
    return check_qpn(req.qpn);
  }
  if (attribute == wire::CmAttribute::kRep) {
    const auto& rep = mad.as<wire::CmRep>();
    if (auto ok = check_guid(rep.ca_guid); !ok) return ok;
    for (const uint32_t qpn : {uint32_t{rep.qpn}, uint32_t{rep.eecn}})
      if (qpn != 0)
        if (auto ok = check_qpn(qpn); !ok) return ok;
  } else if (attribute == wire::CmAttribute::kSidrReq) {
    const auto& req = mad.as<wire::CmSidrReq>();
    if (!named_rightly(req.service_id, req.private_data, local))
      return refuse_gid(wire::ip_ends(req.private_data)->source);
  } else if (attribute == wire::CmAttribute::kSidrRep) {
    const auto& rep = mad.as<wire::CmSidrRep>();
    if (rep.status == static_cast<uint8_t>(wire::SidrStatus::kValid)) return check_qpn(rep.qpn);
  }
  return {};
}

bool EndpointState::counted(bool has_token) {
  if (!has_token) ++counters.over_rate;
  return has_token;
}

std::string requester_name(const EndpointState* sender, const verbs::Gid& source) {
  if (sender != nullptr) return sender->setup.tenant;
  return "[" + host_of(source).text() + "]";  // no tenant has such a name
}

bool EndpointState::take_incoming(const EndpointState* sender, const verbs::Gid& source) {
  const base::TimePoint now = mux->clock.now();
  return counted(sender != nullptr ? tenants.take(now, sender->setup.tenant)
                                   : hosts.take(now, host_of(source)));
}

bool EndpointState::has_room() {
  if (connections < setup.limits.connections && pending < setup.limits.pending) return true;
  ++counters.crowded;
  return false;
}

base::Result<void> EndpointState::take_outgoing() {
  if (has_room() && counted(outgoing.take(mux->clock.now()))) return {};
  ++counters.limited;
  return no_room();
}

base::Result<void> EndpointState::no_room() const {
  return base::fail(EAGAIN,
                    "vdevice " + setup.vdevice + " has reached its limit of requests in progress");
}

Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
  if (this != &other) {
    reset();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Endpoint::reset() {
  if (const auto state = std::move(state_)) state->mux->detach(*state);
}

base::Result<void> Endpoint::set_gids(const std::vector<verbs::Gid>& gids) {
  MuxState& mux = *state_->mux;
  for (const auto& gid : gids) {
    const EndpointState* owner = mux.owner(state_->setup.fabric, gid);
    if (owner != nullptr && owner != state_.get())
      return base::fail(EADDRINUSE,
                        gid.text() + " is an address of vdevice " + owner->setup.vdevice);
  }
  auto& fabric = mux.fabrics[state_->setup.fabric];
  for (const auto& gid : state_->gids) fabric.erase(gid);
  state_->gids = gids;
  for (const auto& gid : gids) fabric[gid] = state_.get();
  if (fabric.empty()) mux.fabrics.erase(state_->setup.fabric);
  return {};
}

Lookup Endpoint::look_up(base::Duration timeout, Lookups::Begin begin, Lookups::Answer answer) {
  MuxState& mux = *state_->mux;
  return mux.lookups.start(state_->setup.tenant, mux.clock.now() + timeout, std::move(begin),
                           std::move(answer));
}

void Endpoint::set_limits(const Limits& limits) {
  state_->setup.limits = limits;
  state_->outgoing.set(limits.requests_per_second, limits.burst);
  state_->tenants.set(limits.requests_per_second, limits.burst);
  state_->hosts.set(limits.requests_per_second, limits.burst);
}

void Endpoint::set_island(uint64_t island) { state_->island = island; }

bool Endpoint::owns(const verbs::Gid& gid) const { return state_->owns(gid); }

Connection Endpoint::connection(ConnectionHandler* handler) {
  auto exchange = Exchange::make(state_);
  exchange->handler = handler;
  return Exchange::hold(std::move(exchange));
}

// The node GUID is that of the vdevice that the connection had before. Only unanswered messages are
// needed.
base::Result<void> Endpoint::claim(ConnectionRecord* record) const {
  if (record->state == State::kClosed) return {};
  if (!owns(record->path.local))
    return tl::unexpected(state_->refuse_gid(record->path.local).error());
  const auto attribute = wire::cm_attribute(record->sent.header);
  if (attribute == wire::CmAttribute::kReq)
    record->sent.as<wire::CmReq>().ca_guid = state_->setup.node_guid;
  if (attribute == wire::CmAttribute::kRep)
    record->sent.as<wire::CmRep>().ca_guid = state_->setup.node_guid;
  auto named = state_->check_names(record->path.local, record->sent);
  if (named || is_repeated(record->state)) return named;
  record->sent = {};
  return {};
}

base::Result<Connection> Endpoint::restore(const ConnectionRecord& record,
                                           ConnectionHandler* handler) {
  auto exchange = Exchange::restore(state_, record);
  if (!exchange) return base::fail(EEXIST, "a connection with that id already exists");
  exchange->handler = handler;
  return Exchange::hold(std::move(exchange));
}

base::Result<Listener> Endpoint::listen(uint64_t service_id, std::optional<verbs::Gid> gid,
                                        uint32_t backlog, ListenHandler* handler, Absent absent) {
  if (absent == Absent::kMayNot && gid && !gid->is_unspecified() && !state_->owns(*gid))
    return tl::unexpected(state_->refuse_gid(*gid).error());
  auto& place = state_->listeners[{service_id, gid}];
  if (place)
    return base::fail(EADDRINUSE, "vdevice " + state_->setup.vdevice + " already listens there");
  place = std::make_shared<ListenerState>();
  place->endpoint = state_.get();
  place->service_id = service_id;
  place->gid = gid;
  place->backlog = backlog;
  place->handler = handler;
  state_->mux->on_listen(*state_, service_id);
  return Listener(place);
}

base::Result<RawPort> Endpoint::open_raw(RawHandler* handler) {
  if (!state_->setup.raw)
    return base::fail(EPERM, "vdevice " + state_->setup.vdevice + " has no raw queue pair 1");
  if (state_->raw != nullptr)
    return base::fail(EBUSY, "queue pair 1 of vdevice " + state_->setup.vdevice + " is in use");
  state_->raw = handler;
  return RawPort(state_);
}

const Counters& Endpoint::counters() const { return state_->counters; }

Use Endpoint::use() const {
  return {state_->connections, state_->pending, state_->half_open, state_->early,
          static_cast<uint32_t>(state_->outgoing.used(state_->mux->clock.now()))};
}

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this != &other) {
    reset();
    state_ = std::move(other.state_);
  }
  return *this;
}

void Listener::reset() {
  const auto state = std::move(state_);
  if (!state || state->endpoint == nullptr) return;
  state->endpoint->listeners.erase({state->service_id, state->gid});
  state->endpoint = nullptr;
}

void Listener::set_backlog(uint32_t backlog) { state_->backlog = backlog; }

RawPort& RawPort::operator=(RawPort&& other) noexcept {
  if (this != &other) {
    reset();
    state_ = std::move(other.state_);
  }
  return *this;
}

void RawPort::reset() {
  if (const auto state = std::move(state_)) state->raw = nullptr;
}

base::Result<void> RawPort::send(const Path& path, const wire::Mad& mad) {
  if (!state_ || state_->mux == nullptr) return base::fail(ENODEV, "the device has gone");
  EndpointState& endpoint = *state_;
  if (!endpoint.owns(path.local)) return endpoint.refuse_gid(path.local);
  if (auto ok = endpoint.check_names(path.local, mad); !ok) return ok;
  if (!endpoint.counted(endpoint.outgoing.take(endpoint.mux->clock.now()))) {
    ++endpoint.counters.limited;
    return base::fail(EAGAIN,
                      "vdevice " + endpoint.setup.vdevice + " exceeds its rate of requests");
  }
  ++endpoint.counters.raw_sent;
  endpoint.mux->send(endpoint, path, mad);
  return {};
}

}  // namespace vrdma::qp1mux
