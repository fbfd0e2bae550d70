// New exchanges: a REQ or a SIDR_REQ from a peer, in the order of the checks.
#include "core/wire/rdma_cm.h"
#include "qp1mux/exchange.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {
namespace {

uint16_t source_port(uint64_t service_id, const uint8_t* private_data) {
  if (!wire::port_space(service_id)) return 0;
  const auto ends = wire::ip_ends(private_data);
  return ends ? ends->source_port : 0;
}

// Converts the message to this side's view.
Req turned_round(const wire::CmReq& message, const Path& path) {
  Req req;
  req.path = path;
  req.service_id = message.service_id;
  req.ca_guid = message.ca_guid;
  req.transport = message.transport();
  req.qpn = message.qpn;
  req.starting_psn = message.starting_psn;
  req.responder_resources = message.initiator_depth;
  req.initiator_depth = message.responder_resources;
  req.path_mtu = message.mtu();
  req.retry_count = message.retry_count();
  req.rnr_retry_count = message.rnr_retry_count();
  req.ack_timeout = message.primary.ack_timeout();
  req.remote_cm_timeout = message.remote_cm_timeout();
  req.local_cm_timeout = message.local_cm_timeout();
  req.max_cm_retries = message.max_cm_retries();
  req.srq = message.srq();
  req.flow_control = message.flow_control();
  req.private_data = message.private_data;
  return req;
}

}  // namespace

bool MuxState::has_room(EndpointState& endpoint, const ListenerState& listener,
                        EndpointState* sender, const verbs::Gid& source) {
  if (sender != nullptr && sender != &endpoint &&
      sender->half_open >= sender->setup.limits.connections) {
    ++sender->counters.crowded;
    ++sender->counters.limited;
    return false;
  }
  const auto waiting = listener.waiting_of.find(requester_name(sender, source));
  const bool has_backlog =
      (waiting == listener.waiting_of.end() ? 0 : waiting->second) < listener.backlog;
  // Tenants of this host and the connections that stand keep half of the room, however many other
  // hosts there are.
  const Limits& limits = endpoint.setup.limits;
  const bool is_crowd = sender == nullptr &&
                        (endpoint.strangers >= limits.pending / 2 ||
                         endpoint.strangers + endpoint.fruitless >= (limits.connections + 1) / 2);
  // Who accepts holds a queue pair until the RTU, which a host that only asks never sends.
  const bool is_flood = sender == nullptr && endpoint.unproven >= limits.unproven &&
                        !endpoint.proven.has(source, endpoint.mux->clock.now());
  if (has_backlog && !is_crowd && !is_flood && endpoint.has_room()) return true;
  ++endpoint.counters.overloaded;
  return false;
}

// Repeats the answer to the first copy of a request.
void MuxState::on_request_again(Exchange& exchange, const Packet& packet) {
  const auto attribute = exchange.datagram ? wire::CmAttribute::kSidrReq : wire::CmAttribute::kReq;
  ++exchange.counters().duplicates[Counters::index(attribute)];
  switch (exchange.state) {
    case State::kReqReceived:
      if (exchange.sent_is(wire::CmAttribute::kMra)) exchange.repeat();
      return;
    case State::kRepSent:
      return exchange.repeat();
    case State::kTimewait:
      if (exchange.sent_is(wire::CmAttribute::kRej) ||
          exchange.sent_is(wire::CmAttribute::kSidrRep))
        return exchange.repeat();
      return reject(*exchange.endpoint, packet, 0, exchange.remote_id,
                    wire::RejectReason::kStaleConnection, wire::Answered::kReq);
    default:
      return;
  }
}

bool MuxState::wait_for_listener(EndpointState& endpoint, const Packet& packet) {
  if (patient.contains(packet.destination)) return true;
  if (last_look_ || config.patience == base::Duration::zero()) return false;
  EndpointState* const sender = sender_of(packet);
  std::unique_ptr<KeptPacket> evicted;
  if (!early_.add(endpoint, sender != nullptr ? sender->shared_from_this() : nullptr, packet,
                  clock.now() + config.patience, &evicted))
    return false;
  if (evicted) look_again(evicted->packet());
  keep_time();
  return true;
}

void MuxState::on_listen(const EndpointState& endpoint, uint64_t service_id) {
  early_.hurry(endpoint, service_id, clock.now());
  keep_time();
}

void MuxState::look_again(const Packet& packet) {
  EndpointState* endpoint = owner(packet.fabric, packet.destination);
  if (endpoint == nullptr) return;
  last_look_ = true;
  if (wire::cm_attribute(packet.mad.header) == wire::CmAttribute::kReq)
    on_req(*endpoint, packet);
  else
    on_sidr_req(*endpoint, packet);
  last_look_ = false;
}

void MuxState::on_req(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmReq>();
  const auto refuse = [&](wire::RejectReason reason) {
    reject(endpoint, packet, 0, message.local_id, reason, wire::Answered::kReq);
  };
  EndpointState* const sender = sender_of(packet);
  if (!last_look_ && !endpoint.take_incoming(sender, packet.source)) {
    ++endpoint.counters.overloaded;
    return;
  }
  // The same id and transaction are a repetition. Another transaction, or another id with the same
  // queue pair, means that the peer has lost its connection.
  Exchange* known = by_peer({&endpoint, packet.source, message.local_id, PeerKey::Kind::kId});
  if (known != nullptr && known->transaction == packet.mad.header.transaction_id)
    return on_request_again(*known, packet);
  // Anybody can guess these numbers of another host. So a new connection of the same queue pair
  // must be proven first, in on_rtu(), and one of the same id ends nothing. Nor does a request that
  // is not proven keep the host itself from asking.
  bool contests = false;
  if (known == nullptr) {
    known = by_peer({&endpoint, packet.source, message.qpn, PeerKey::Kind::kQpn});
    contests = known != nullptr && sender == nullptr &&
               (known->state == State::kEstablished || (!known->active && !known->stood));
  }
  if (known != nullptr && !contests) {
    refuse(wire::RejectReason::kStaleConnection);
    if (known->state == State::kEstablished && sender != nullptr) known->begin_dreq();
    return;
  }
  const auto listener = endpoint.listener(message.service_id, packet.destination);
  if (!listener) {
    if (!hand_to_raw(endpoint, packet) && !wait_for_listener(endpoint, packet))
      refuse(wire::RejectReason::kInvalidServiceId);
    return;
  }
  const wire::CmTransport transport = message.transport();
  if (transport == wire::CmTransport::kRd || (transport == wire::CmTransport::kExtended &&
                                              message.extended_transport() != wire::kExtendedXrc))
    return refuse(wire::RejectReason::kInvalidTransport);
  if (message.primary.remote_gid != packet.destination ||
      message.primary.local_gid != packet.source)
    return refuse(wire::RejectReason::kInvalidGid);
  if (message.mtu() < 1 || message.mtu() > 5) return refuse(wire::RejectReason::kInvalidMtu);
  if (!has_room(endpoint, *listener, sender, packet.source)) return;

  auto exchange = Exchange::make(endpoint.shared_from_this());
  exchange->active = false;
  if (sender != nullptr && sender != &endpoint) exchange->asker = sender->shared_from_this();
  exchange->listener = listener;
  exchange->set_path(way_back(packet));
  exchange->remote_id = message.local_id;
  exchange->remote_qpn = message.qpn;
  exchange->transport = transport;
  exchange->service_id = message.service_id;
  exchange->source_port = source_port(message.service_id, message.private_data);
  exchange->transaction = packet.mad.header.transaction_id;
  const base::Duration ack_timeout = time_of(message.primary.ack_timeout());
  exchange->timewait = ack_timeout;
  // The ACK timeout serves as twice the packet life time, which a REQ does not contain.
  exchange->response = time_of(std::min(message.local_cm_timeout(), kMaxResponse)) +
                       std::min(ack_timeout, time_of(kMaxResponse));
  exchange->max_retries = message.max_cm_retries();
  exchange->know(PeerKey::Kind::kId, exchange->remote_id);
  if (!contests) exchange->know(PeerKey::Kind::kQpn, exchange->remote_qpn);
  exchange->enter(State::kReqReceived);
  const Req req = turned_round(message, exchange->path);
  listener->handler->on_request(Exchange::hold(std::move(exchange)), req);
}

void MuxState::on_sidr_req(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmSidrReq>();
  EndpointState* const sender = sender_of(packet);
  if (!last_look_ && !endpoint.take_incoming(sender, packet.source)) {
    ++endpoint.counters.overloaded;
    return;
  }
  if (Exchange* known =
          by_peer({&endpoint, packet.source, message.request_id, PeerKey::Kind::kSidr}))
    return on_request_again(*known, packet);
  const auto listener = endpoint.listener(message.service_id, packet.destination);
  if (!listener) {
    if (hand_to_raw(endpoint, packet) || wait_for_listener(endpoint, packet)) return;
    wire::Mad mad;
    auto& rep = wire::begin<wire::CmSidrRep>(mad, packet.mad.header.transaction_id);
    rep.request_id = message.request_id;
    rep.status = static_cast<uint8_t>(wire::SidrStatus::kUnsupported);
    rep.service_id = message.service_id;
    return send(endpoint, way_back(packet), mad);
  }
  if (!has_room(endpoint, *listener, sender, packet.source)) return;

  auto exchange = Exchange::make(endpoint.shared_from_this());
  exchange->active = false;
  if (sender != nullptr && sender != &endpoint) exchange->asker = sender->shared_from_this();
  exchange->datagram = true;
  exchange->listener = listener;
  exchange->set_path(way_back(packet));
  exchange->remote_id = message.request_id;
  exchange->service_id = message.service_id;
  exchange->source_port = source_port(message.service_id, message.private_data);
  exchange->transaction = packet.mad.header.transaction_id;
  exchange->know(PeerKey::Kind::kSidr, exchange->remote_id);
  exchange->enter(State::kSidrReqReceived);
  SidrReq req;
  req.path = exchange->path;
  req.service_id = message.service_id;
  req.private_data = message.private_data;
  listener->handler->on_sidr_request(Exchange::hold(std::move(exchange)), req);
}

}  // namespace vrdma::qp1mux
