#include "qp1mux/mux.h"

#include <algorithm>
#include <utility>

#include "core/wire/roce.h"
#include "qp1mux/exchange.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {

EndpointState* MuxState::owner(std::string_view fabric, const verbs::Gid& gid) const {
  const auto members = fabrics.find(fabric);
  if (members == fabrics.end()) return nullptr;
  const auto it = members->second.find(gid);
  return it == members->second.end() ? nullptr : it->second;
}

bool MuxState::is_near(const EndpointState& endpoint, const verbs::Gid& gid) const {
  const EndpointState* const there = owner(endpoint.setup.fabric, gid);
  return there != nullptr && there->island == endpoint.island;
}

void MuxState::detach(EndpointState& endpoint) {
  std::vector<std::shared_ptr<Exchange>> mine;
  for (const auto& [id, exchange] : exchanges)
    if (exchange->endpoint.get() == &endpoint) mine.push_back(exchange);
  for (const auto& exchange : mine) exchange->end_at_once();
  for (const auto& [where, listener] : endpoint.listeners) listener->endpoint = nullptr;
  endpoint.listeners.clear();
  if (const auto fabric = fabrics.find(endpoint.setup.fabric); fabric != fabrics.end()) {
    for (const auto& gid : endpoint.gids) fabric->second.erase(gid);
    if (fabric->second.empty()) fabrics.erase(fabric);
  }
  endpoint.gids.clear();
  early_.drop(endpoint);
  endpoint.mux = nullptr;
  std::erase_if(endpoints, [&](const auto& other) { return other.get() == &endpoint; });
}

uint32_t MuxState::new_id() {
  for (;;) {
    const auto id = static_cast<uint32_t>(config.random());
    if (id != 0 && !exchanges.contains(id)) return id;
  }
}

Path MuxState::way_back(const Packet& packet) {
  Path path;
  path.local = packet.destination;
  path.remote = packet.source;
  path.roce = packet.roce;
  path.traffic_class = packet.traffic_class & wire::kDscp;  // without the marks of congestion
  path.flow_label = packet.flow_label;
  return path;
}

void MuxState::send(EndpointState& endpoint, const Path& path, const wire::Mad& mad) {
  if (!endpoint.owns(path.local)) {  // it was removed meanwhile
    ++endpoint.counters.refused;
    return;
  }
  if (const auto attribute = wire::cm_attribute(mad.header)) {
    ++endpoint.counters.sent[Counters::index(*attribute)];
    if (*attribute == wire::CmAttribute::kRej) {
      const uint16_t reason = mad.as<wire::CmRej>().reason;
      ++endpoint.counters.rejects_sent[reason < Counters::kReasons ? reason : 0];
    }
  }
  wire.send({endpoint.setup.fabric, path.local, path.remote, path.roce, path.traffic_class,
             path.hop_limit, path.flow_label, mad});
}

void MuxState::reject(EndpointState& endpoint, const Packet& packet, uint32_t local_id,
                      uint32_t remote_id, wire::RejectReason reason, wire::Answered answered) {
  wire::Mad mad;
  auto& rej = wire::begin<wire::CmRej>(mad, packet.mad.header.transaction_id);
  rej.local_id = local_id;
  rej.remote_id = remote_id;
  rej.set_answered(answered);
  rej.reason = static_cast<uint16_t>(reason);
  send(endpoint, way_back(packet), mad);
}

void MuxState::receive(const Packet& packet) {
  EndpointState* owner_here = owner(packet.fabric, packet.destination);
  if (owner_here == nullptr) {
    ++unowned;
    return;
  }
  // Vdevices of an island do not talk by the network, so this is a stranger who names one of them.
  if (packet.from_network && is_near(*owner_here, packet.source)) {
    ++spoofed;
    return;
  }
  EndpointState& endpoint = *owner_here;
  const auto attribute = wire::cm_attribute(packet.mad.header);
  if (attribute == wire::CmAttribute::kReq || attribute == wire::CmAttribute::kSidrReq) {
    ++endpoint.counters.received[Counters::index(*attribute)];
    if (attribute == wire::CmAttribute::kReq)
      on_req(endpoint, packet);
    else
      on_sidr_req(endpoint, packet);
    return;
  }
  if (attribute) {
    ++endpoint.counters.received[Counters::index(*attribute)];
    if (on_answer(endpoint, *attribute, packet)) return;
  }
  if (hand_to_raw(endpoint, packet)) return;
  if (attribute)
    on_stray(endpoint, *attribute, packet);
  else
    ++unknown;
}

bool MuxState::hand_to_raw(EndpointState& endpoint, const Packet& packet) {
  if (endpoint.raw == nullptr) return false;
  ++endpoint.counters.raw_received;
  endpoint.raw->on_mad(packet);
  return true;
}

void MuxState::keep_time() {
  const Due* first = due.first();
  std::optional<base::TimePoint> when;
  if (first != nullptr) when = first->when;
  if (const Due* early = early_.first(); early != nullptr && (!when || early->when < *when))
    when = early->when;
  if (const Due* lookup = lookups.first(); lookup != nullptr && (!when || lookup->when < *when))
    when = lookup->when;
  if (!when || (wake_ && *wake_ <= *when)) return;
  wake_ = when;
  clock.wake_at(*when);
}

void MuxState::advance() {
  const base::TimePoint now = clock.now();
  while (Due* first = due.first()) {
    if (first->when > now) break;
    due.cancel(first);
    static_cast<Exchange*>(first)->on_due();
  }
  while (const auto early = early_.next(now)) look_again(early->packet());
  lookups.advance(now);
  wake_.reset();
  keep_time();
}

bool MuxState::is_half_open(const Exchange& exchange) const {
  if (exchange.remote) return false;  // the peer is not of this process, and has not ended with it
  if (exchange.state != State::kEstablished && exchange.state != State::kRepReceived) return false;
  const auto peer = exchanges.find(exchange.remote_id);
  return peer == exchanges.end() || peer->second->state == State::kTimewait ||
         peer->second->path.local != exchange.path.remote ||
         peer->second->endpoint->setup.fabric != exchange.endpoint->setup.fabric;
}

void MuxState::drop_half_open(const std::function<bool(const Exchange&)>& may_be) {
  std::vector<std::shared_ptr<Exchange>> half_open;
  for (const auto& [id, exchange] : exchanges)
    if (is_half_open(*exchange) && may_be(*exchange)) half_open.push_back(exchange);
  for (const auto& exchange : half_open) {
    wire::Mad mad;
    auto& dreq = wire::begin<wire::CmDreq>(mad, transaction_base | exchange->remote_id);
    dreq.local_id = exchange->remote_id;
    dreq.remote_id = exchange->local_id;
    dreq.remote_qpn = exchange->local_qpn;
    const Path& path = exchange->path;
    // The peer's address may be gone, so the DREQ bypasses the lookup.
    (void)on_dreq(*exchange->endpoint,
                  {exchange->endpoint->setup.fabric, path.remote, path.local, path.roce,
                   path.traffic_class, path.hop_limit, path.flow_label, mad});
  }
}

Mux::Mux(const Config& config, Clock& clock, Wire& wire)
    : state_(std::make_shared<MuxState>(config, clock, wire)) {}
Mux::~Mux() = default;

base::Result<Endpoint> Mux::attach(EndpointSetup setup) {
  if (!setup.owns_qpn) return base::fail(EINVAL, "owns_qpn is required");
  auto endpoint = std::make_shared<EndpointState>();
  endpoint->mux = state_.get();
  endpoint->setup = std::move(setup);
  state_->endpoints.push_back(endpoint);
  Endpoint handle(std::move(endpoint));
  const Limits limits = handle.state_->setup.limits;
  handle.set_limits(limits);
  return handle;
}

void Mux::receive(const Packet& packet) { state_->receive(packet); }
void Mux::advance() { state_->advance(); }
void Mux::drop_half_open() {
  state_->drop_half_open([](const Exchange&) { return true; });
}
void Mux::drop_half_open(const std::set<uint32_t>& among, const std::set<uint32_t>& awaited) {
  state_->drop_half_open([&](const Exchange& exchange) {
    return among.contains(exchange.local_id) && !awaited.contains(exchange.remote_id);
  });
}
bool Mux::has_connection(uint32_t local_id) const { return state_->exchanges.contains(local_id); }
std::shared_ptr<void> Mux::be_patient(const std::vector<verbs::Gid>& gids) {
  for (const auto& gid : gids) ++state_->patient[gid];
  return {state_.get(), [gids, weak = std::weak_ptr(state_)](void*) {
            const auto state = weak.lock();
            if (state == nullptr) return;
            for (const auto& gid : gids)
              if (--state->patient[gid] == 0) state->patient.erase(gid);
          }};
}
bool Mux::are_near(std::string_view fabric, const verbs::Gid& one, const verbs::Gid& other) const {
  const EndpointState* const first = state_->owner(fabric, one);
  return first != nullptr && state_->is_near(*first, other);
}
uint64_t Mux::unowned() const { return state_->unowned; }
uint64_t Mux::spoofed() const { return state_->spoofed; }
uint64_t Mux::unknown() const { return state_->unknown; }

std::vector<ConnectionInfo> Mux::connections() const {
  const base::TimePoint now = state_->clock.now();
  std::vector<ConnectionInfo> list;
  for (const auto& [id, exchange] : state_->exchanges) {
    if (exchange->state == State::kIdle) continue;
    const EndpointSetup& setup = exchange->endpoint->setup;
    list.push_back({setup.vdevice, setup.vdevice_id, setup.tenant, setup.fabric, exchange->state,
                    exchange->active, exchange->datagram, exchange->transport, exchange->path.local,
                    exchange->path.remote, exchange->service_id, exchange->source_port,
                    exchange->local_qpn, exchange->remote_qpn, exchange->local_id,
                    exchange->remote_id, now - exchange->begun});
  }
  return list;
}

std::vector<ListenerInfo> Mux::listeners() const {
  std::vector<ListenerInfo> list;
  for (const auto& endpoint : state_->endpoints)
    for (const auto& [where, listener] : endpoint->listeners)
      list.push_back({endpoint->setup.vdevice, endpoint->setup.vdevice_id, endpoint->setup.tenant,
                      endpoint->setup.fabric, listener->service_id, listener->gid,
                      listener->waiting, listener->backlog});
  return list;
}

}  // namespace vrdma::qp1mux
