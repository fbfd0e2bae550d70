// Messages for existing exchanges, matched by their ids; and stateless answers.
#include <algorithm>

#include "qp1mux/exchange.h"
#include "qp1mux/mux_state.h"

namespace vrdma::qp1mux {
namespace {

void count_duplicate(Exchange& exchange, wire::CmAttribute attribute) {
  ++exchange.counters().duplicates[Counters::index(attribute)];
}

}  // namespace

std::shared_ptr<Exchange> MuxState::find(const EndpointState& endpoint, const Packet& packet,
                                         uint32_t ours, uint32_t theirs) const {
  const auto it = exchanges.find(ours);
  if (it == exchanges.end()) return nullptr;
  const auto& exchange = it->second;
  if (exchange->endpoint.get() != &endpoint || exchange->path.remote != packet.source ||
      exchange->state == State::kIdle || exchange->datagram)
    return nullptr;
  // The peer of a REQ tells its id only with its answer.
  const bool unknown_yet = exchange->active && exchange->remote_id == 0;
  if (!unknown_yet && exchange->remote_id != theirs) return nullptr;
  exchange->prove_peer();
  return exchange;
}

bool MuxState::on_answer(EndpointState& endpoint, wire::CmAttribute attribute,
                         const Packet& packet) {
  switch (attribute) {
    case wire::CmAttribute::kMra:
      return on_mra(endpoint, packet);
    case wire::CmAttribute::kRej:
      return on_rej(endpoint, packet);
    case wire::CmAttribute::kRep:
      return on_rep(endpoint, packet);
    case wire::CmAttribute::kRtu:
      return on_rtu(endpoint, packet);
    case wire::CmAttribute::kDreq:
      return on_dreq(endpoint, packet);
    case wire::CmAttribute::kDrep:
      return on_drep(endpoint, packet);
    case wire::CmAttribute::kSidrRep:
      return on_sidr_rep(endpoint, packet);
    case wire::CmAttribute::kLap:
      return on_lap(endpoint, packet);
    case wire::CmAttribute::kReq:  // not answers
    case wire::CmAttribute::kSidrReq:
    case wire::CmAttribute::kApr:  // we never send a LAP
      return false;
  }
  return false;
}

bool MuxState::on_mra(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmMra>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange) return false;
  const auto answered = message.answered();
  const bool fits = (exchange->state == State::kReqSent &&
                     answered == static_cast<uint8_t>(wire::Answered::kReq)) ||
                    (exchange->state == State::kRepSent &&
                     answered == static_cast<uint8_t>(wire::Answered::kRep));
  if (!fits) {
    count_duplicate(*exchange, wire::CmAttribute::kMra);
    return true;
  }
  const base::Duration service =
      time_of(std::min(message.service_timeout(), config.max_service_timeout));
  const base::TimePoint next = clock.now() + service + exchange->response;
  exchange->interval = exchange->response;
  // Each MRA uses up a retry, so that a peer cannot delay us indefinitely.
  if (exchange->retries_left > 0) {
    --exchange->retries_left;
    exchange->give_up = next + exchange->response * exchange->retries_left;
  }
  due.set(exchange.get(), std::min(next, exchange->give_up));
  keep_time();
  exchange->emit({.kind = EventKind::kMraReceived,
                  .service_timeout = service,
                  .private_data = message.private_data});
  return true;
}

bool MuxState::on_rej(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmRej>();
  auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (message.remote_id == 0) {  // the peer never learned our id, so that it has confirmed nothing
    Exchange* known = by_peer({&endpoint, packet.source, message.local_id, PeerKey::Kind::kId});
    if (known != nullptr && !known->stood) exchange = known->shared_from_this();
  }
  if (!exchange) return false;
  switch (exchange->state) {
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepReceived:
    case State::kRepSent:
    case State::kEstablished:
    case State::kDreqSent:
      break;
    default:
      count_duplicate(*exchange, wire::CmAttribute::kRej);
      return true;
  }
  const uint16_t reason = message.reason;
  ++endpoint.counters.rejects_received[reason < Counters::kReasons ? reason : 0];
  exchange->enter_timewait();
  Rej rej;
  rej.reason = static_cast<wire::RejectReason>(reason);
  rej.answered = static_cast<wire::Answered>(message.answered());
  rej.ari = {message.ari, std::min<size_t>(message.ari_length(), sizeof message.ari)};
  rej.private_data = message.private_data;
  exchange->emit({.kind = EventKind::kRejReceived, .rej = &rej});
  return true;
}

bool MuxState::on_rep(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmRep>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange || !exchange->active) return false;
  if (exchange->state != State::kReqSent) {
    // The RTU, MRA or REJ that answered the first copy may have been lost. If this side timed out
    // without telling the peer, it answers as if the exchange were unknown.
    const bool silent =
        exchange->state == State::kTimewait && !exchange->sent_is(wire::CmAttribute::kRej);
    if (silent) return false;
    count_duplicate(*exchange, wire::CmAttribute::kRep);
    if (exchange->sent_is(wire::CmAttribute::kRtu) || exchange->sent_is(wire::CmAttribute::kMra) ||
        exchange->sent_is(wire::CmAttribute::kRej))
      exchange->repeat();
    return true;
  }
  const bool xrc = exchange->transport == wire::CmTransport::kExtended;
  const uint32_t qpn = xrc ? message.eecn : message.qpn;
  due.cancel(exchange.get());
  exchange->remote_id = message.local_id;
  exchange->remote_qpn = qpn;
  exchange->enter(State::kRepReceived);
  Exchange* known = by_peer({&endpoint, packet.source, qpn, PeerKey::Kind::kQpn});
  if (known != nullptr) {  // the peer has lost that connection
    if (known->state == State::kEstablished) known->begin_dreq();
    Rej rej;
    rej.reason = wire::RejectReason::kStaleConnection;
    rej.answered = wire::Answered::kRep;
    exchange->compose_rej(rej);
    exchange->post();
    exchange->enter_timewait();
    exchange->emit({.kind = EventKind::kRejReceived, .rej = &rej});
    return true;
  }
  exchange->know(PeerKey::Kind::kQpn, exchange->remote_qpn);
  Rep rep;
  rep.ca_guid = message.ca_guid;
  rep.qpn = qpn;
  rep.starting_psn = message.starting_psn;
  rep.responder_resources = message.initiator_depth;
  rep.initiator_depth = message.responder_resources;
  rep.target_ack_delay = message.target_ack_delay();
  rep.failover = message.failover();
  rep.rnr_retry_count = message.rnr_retry_count();
  rep.srq = message.srq();
  rep.flow_control = message.flow_control();
  rep.private_data = message.private_data;
  exchange->emit({.kind = EventKind::kRepReceived, .rep = &rep});
  return true;
}

bool MuxState::on_rtu(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmRtu>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange) return false;
  if (exchange->state != State::kRepSent) {
    count_duplicate(*exchange, wire::CmAttribute::kRtu);
    // It came too late, and the REJ that said so was lost.
    if (exchange->state == State::kTimewait && exchange->sent_is(wire::CmAttribute::kRej))
      exchange->repeat();
    return true;
  }
  due.cancel(exchange.get());
  exchange->enter(State::kEstablished);
  // The peer has named our id, so it has lost another connection of that queue pair.
  Exchange* known = by_peer({&endpoint, packet.source, exchange->remote_qpn, PeerKey::Kind::kQpn});
  if (known != exchange.get()) {
    exchange->know(PeerKey::Kind::kQpn, exchange->remote_qpn);
    if (known != nullptr && known->state == State::kEstablished) known->begin_dreq();
  }
  exchange->emit({.kind = EventKind::kRtuReceived, .private_data = message.private_data});
  return true;
}

bool MuxState::on_dreq(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmDreq>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange || exchange->state == State::kReqSent) return false;
  switch (exchange->state) {
    case State::kRepReceived:
    case State::kRepSent:
    case State::kEstablished:
    case State::kDreqSent:
      break;
    case State::kTimewait:
      count_duplicate(*exchange, wire::CmAttribute::kDreq);
      answer_dreq(endpoint, packet);
      return true;
    default:
      count_duplicate(*exchange, wire::CmAttribute::kDreq);
      return true;
  }
  if (message.remote_qpn != exchange->local_qpn) {
    ++endpoint.counters.strays;
    return true;
  }
  due.cancel(exchange.get());
  exchange->stood = true;
  exchange->dreq_transaction = packet.mad.header.transaction_id;
  if (exchange->state == State::kDreqSent) {  // DREQs crossed; each also counts as a DREP
    exchange->send_drep();
    exchange->emit({.kind = EventKind::kDrepReceived, .private_data = {}});
    return true;
  }
  exchange->enter(State::kDreqReceived);
  exchange->emit({.kind = EventKind::kDreqReceived, .private_data = message.private_data});
  return true;
}

bool MuxState::on_drep(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmDrep>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange) return false;
  if (exchange->state != State::kDreqSent) {
    count_duplicate(*exchange, wire::CmAttribute::kDrep);
    return true;
  }
  exchange->enter_timewait();
  exchange->emit({.kind = EventKind::kDrepReceived, .private_data = message.private_data});
  return true;
}

bool MuxState::on_sidr_rep(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmSidrRep>();
  const auto it = exchanges.find(message.request_id);
  if (it == exchanges.end() || it->second->endpoint.get() != &endpoint ||
      it->second->path.remote != packet.source || it->second->state != State::kSidrReqSent)
    return false;
  const auto exchange = it->second;
  exchange->prove_peer();
  exchange->close();
  SidrRep rep;
  rep.status = static_cast<wire::SidrStatus>(message.status);
  rep.qpn = message.qpn;
  rep.qkey = message.qkey;
  rep.info = {message.info, std::min<size_t>(message.info_length, sizeof message.info)};
  rep.private_data = message.private_data;
  exchange->emit({.kind = EventKind::kSidrRepReceived, .sidr = &rep});
  return true;
}

bool MuxState::on_lap(EndpointState& endpoint, const Packet& packet) {
  const auto& message = packet.mad.as<wire::CmLap>();
  const auto exchange = find(endpoint, packet, message.remote_id, message.local_id);
  if (!exchange || exchange->state != State::kEstablished ||
      message.remote_qpn != exchange->local_qpn)
    return false;
  answer_lap(endpoint, packet, wire::AprStatus::kUnsupported);
  return true;
}

void MuxState::on_stray(EndpointState& endpoint, wire::CmAttribute attribute,
                        const Packet& packet) {
  ++endpoint.counters.strays;
  if (patient.contains(packet.destination)) return;
  if (!endpoint.take_incoming(sender_of(packet), packet.source)) return;
  if (attribute == wire::CmAttribute::kRep) {
    const auto& rep = packet.mad.as<wire::CmRep>();
    reject(endpoint, packet, rep.remote_id, rep.local_id, wire::RejectReason::kInvalidCommId,
           wire::Answered::kRep);
  } else if (attribute == wire::CmAttribute::kDreq) {
    answer_dreq(endpoint, packet);
  } else if (attribute == wire::CmAttribute::kLap) {
    answer_lap(endpoint, packet, wire::AprStatus::kInvalidCommId);
  }
}

void MuxState::answer_dreq(EndpointState& endpoint, const Packet& packet) {
  const auto& dreq = packet.mad.as<wire::CmDreq>();
  wire::Mad mad;
  auto& drep = wire::begin<wire::CmDrep>(mad, packet.mad.header.transaction_id);
  drep.local_id = dreq.remote_id;
  drep.remote_id = dreq.local_id;
  send(endpoint, way_back(packet), mad);
}

void MuxState::answer_lap(EndpointState& endpoint, const Packet& packet, wire::AprStatus status) {
  const auto& lap = packet.mad.as<wire::CmLap>();
  wire::Mad mad;
  auto& apr = wire::begin<wire::CmApr>(mad, packet.mad.header.transaction_id);
  apr.local_id = lap.remote_id;
  apr.remote_id = lap.local_id;
  apr.status = static_cast<uint8_t>(status);
  send(endpoint, way_back(packet), mad);
}

}  // namespace vrdma::qp1mux
