// The commands of a Connection: check, stamp, send.
#include "qp1mux/connection.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/wire/rdma_cm.h"
#include "qp1mux/exchange.h"

namespace vrdma::qp1mux {
namespace {

constexpr uint32_t kMax24 = 0xffffff;
constexpr uint8_t kMaxCode = 31;

tl::unexpected<base::Error> invalid(const char* what) { return base::fail(EINVAL, what); }

// Succeeds if the exchange exists and is in one of `states`.
base::Result<void> check(const std::shared_ptr<Exchange>& exchange, const char* command,
                         std::initializer_list<State> states) {
  if (!exchange || !exchange->endpoint) return base::fail(ENODEV, "the device has gone");
  for (const State state : states)
    if (exchange->state == state) return {};
  return base::fail(
      EINVAL, std::string(command) + " is not possible in state " + state_text(exchange->state));
}

template <size_t N>
base::Result<void> put(uint8_t (&field)[N], PrivateData data) {
  if (data.size() > N)
    return base::fail(EINVAL, "private data of " + std::to_string(data.size()) +
                                  " bytes, the maximum is " + std::to_string(N));
  if (!data.empty()) std::memcpy(field, data.data(), data.size());
  return {};
}

// Checks common to REQ and SIDR_REQ: whether the vdevice may send the request.
base::Result<void> check_request(EndpointState& endpoint, const Path& path, uint64_t service_id,
                                 PrivateData data) {
  if (path.remote.is_multicast()) return invalid("a connection needs one peer, not a group");
  if (!endpoint.owns(path.local)) return endpoint.refuse_gid(path.local);
  if (data.size() >= sizeof(wire::IpHeader) &&
      !EndpointState::named_rightly(service_id, data.data(), path.local))
    return endpoint.refuse_gid(wire::ip_ends(data.data())->source);
  return {};
}

}  // namespace

Connection::Connection(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

Connection Exchange::hold(std::shared_ptr<Exchange> exchange) {
  return Connection(std::move(exchange));
}

Connection& Connection::operator=(Connection&& other) noexcept {
  if (this != &other) {
    reset();
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}

void Connection::reset() {
  if (const auto exchange = std::move(exchange_)) exchange->abandon();
}

void Connection::hold() {
  if (exchange_ && exchange_->endpoint) exchange_->held = true;
}

void Connection::release() {
  if (exchange_ && exchange_->endpoint) exchange_->release();
}

void Connection::leave(bool beyond_host) {
  const auto exchange = std::move(exchange_);
  if (!exchange) return;
  exchange->held = false;
  if (beyond_host && !exchange->remote) return exchange->abandon();
  exchange->handler = nullptr;
  if (exchange->endpoint) exchange->close();
}

void Connection::set_handler(ConnectionHandler* handler) {
  if (exchange_) exchange_->handler = handler;
}

State Connection::state() const { return exchange_ ? exchange_->state : State::kClosed; }
uint32_t Connection::local_id() const { return exchange_ ? exchange_->local_id : 0; }
uint32_t Connection::remote_id() const { return exchange_ ? exchange_->remote_id : 0; }
Path Connection::path() const { return exchange_ ? exchange_->path : Path(); }
bool Connection::asker_pays() const { return exchange_ && exchange_->asker != nullptr; }
ConnectionRecord Connection::record() const {
  return exchange_ && exchange_->endpoint ? *exchange_ : ConnectionRecord();
}

base::Result<void> Connection::send_req(const Req& req) {
  if (auto ok = check(exchange_, "REQ", {State::kIdle}); !ok) return ok;
  Exchange& exchange = *exchange_;
  EndpointState& endpoint = *exchange.endpoint;
  if (req.transport == wire::CmTransport::kRd)
    return invalid("there are no connections of type RD");
  if (req.qpn > kMax24 || req.starting_psn > kMax24)
    return invalid("queue pair numbers and packet sequence numbers have 24 bits");
  if (req.path_mtu < 1 || req.path_mtu > 5)
    return invalid("a path MTU must be 1 (256) .. 5 (4096)");
  if (req.retry_count > 7 || req.rnr_retry_count > 7)
    return invalid("a retry count must be 0 .. 7");
  if (req.max_cm_retries > 15) return invalid("CM retries must be 0 .. 15");
  if (req.ack_timeout > kMaxCode || req.packet_life > kMaxCode ||
      req.remote_cm_timeout > kMaxCode || req.local_cm_timeout > kMaxCode)
    return invalid("a timeout must be a code of 0 .. 31");
  if (auto ok = check_request(endpoint, req.path, req.service_id, req.private_data); !ok) return ok;
  if (auto ok = endpoint.check_qpn(req.qpn); !ok) return ok;
  exchange.transaction = exchange.mux().transaction_base | exchange.local_id;
  auto& message = exchange.compose<wire::CmReq>(exchange.transaction);
  if (auto ok = put(message.private_data, req.private_data); !ok) return ok;
  if (auto ok = endpoint.take_outgoing(); !ok) return ok;

  message.service_id = req.service_id;
  message.ca_guid = endpoint.setup.node_guid;
  message.qpn = req.qpn;
  const bool xrc = req.transport == wire::CmTransport::kExtended;
  if (xrc) {  // an initiator receives nothing and answers no READ
    message.set_extended_transport(wire::kExtendedXrc);
  } else {
    message.responder_resources = req.responder_resources;
    message.set_retry_count(req.retry_count);
    message.set_rnr_retry_count(req.rnr_retry_count);
    message.set_srq(req.srq);
  }
  message.initiator_depth = req.initiator_depth;
  message.set_remote_cm_timeout(req.remote_cm_timeout);
  message.set_transport(req.transport);
  message.set_flow_control(req.flow_control);
  message.starting_psn = req.starting_psn;
  message.set_local_cm_timeout(req.local_cm_timeout);
  message.pkey = wire::kDefaultPkey;
  message.set_mtu(req.path_mtu);
  message.set_max_cm_retries(req.max_cm_retries);
  // Linux marks a RoCE path in the same way: a routed path has the permissive LID.
  const bool routed = req.path.hop_limit > 1;
  message.primary.local_lid = message.primary.remote_lid = routed ? 0xffff : 0;
  message.primary.set_subnet_local(!routed);
  message.primary.local_gid = req.path.local;
  message.primary.remote_gid = req.path.remote;
  message.primary.set_flow_label(req.path.flow_label);
  message.primary.traffic_class = req.path.traffic_class;
  message.primary.hop_limit = req.path.hop_limit;
  message.primary.set_sl(req.path.sl);
  message.primary.set_ack_timeout(req.ack_timeout);

  exchange.set_path(req.path);
  exchange.service_id = req.service_id;
  exchange.local_qpn = req.qpn;
  exchange.transport = req.transport;
  if (wire::port_space(req.service_id))
    if (const auto ends = wire::ip_ends(message.private_data))
      exchange.source_port = ends->source_port;
  exchange.response = time_of(std::min(req.remote_cm_timeout, kMaxResponse)) +
                      2 * time_of(std::min(req.packet_life, kMaxResponse));
  exchange.timewait = time_of(req.ack_timeout);
  exchange.max_retries = req.max_cm_retries;
  exchange.enter(State::kReqSent);
  exchange.post_repeated();
  return {};
}

base::Result<void> Connection::send_mra(uint8_t service_timeout, PrivateData data) {
  if (auto ok = check(exchange_, "MRA", {State::kReqReceived, State::kRepReceived}); !ok) return ok;
  if (service_timeout > kMaxCode) return invalid("a timeout must be a code of 0 .. 31");
  if (data.size() > sizeof(wire::CmMra::private_data)) return invalid("MRA has room for 222 bytes");
  auto& message = exchange_->compose<wire::CmMra>(exchange_->transaction);
  message.set_answered(exchange_->state == State::kReqReceived ? wire::Answered::kReq
                                                               : wire::Answered::kRep);
  message.set_service_timeout(service_timeout);
  (void)put(message.private_data, data);
  exchange_->post();
  return {};
}

base::Result<void> Connection::send_rep(const Rep& rep) {
  if (auto ok = check(exchange_, "REP", {State::kReqReceived}); !ok) return ok;
  if (rep.qpn > kMax24 || rep.starting_psn > kMax24)
    return invalid("queue pair numbers and packet sequence numbers have 24 bits");
  if (rep.rnr_retry_count > 7) return invalid("a retry count must be 0 .. 7");
  if (rep.target_ack_delay > kMaxCode) return invalid("a timeout must be a code of 0 .. 31");
  if (rep.private_data.size() > sizeof(wire::CmRep::private_data))
    return invalid("REP has room for 196 bytes of private data");
  if (auto ok = exchange_->endpoint->check_qpn(rep.qpn); !ok) return ok;
  if (exchange_->asker && !exchange_->endpoint->has_room()) {  // this side is charged from now on
    ++exchange_->counters().overloaded;
    return exchange_->endpoint->no_room();
  }
  auto& message = exchange_->compose<wire::CmRep>(exchange_->transaction);
  message.starting_psn = rep.starting_psn;
  message.responder_resources = rep.responder_resources;
  if (exchange_->transport == wire::CmTransport::kExtended) {  // the target is named as an EEC
    message.eecn = rep.qpn;
    message.set_srq(true);
  } else {
    message.qpn = rep.qpn;
    message.initiator_depth = rep.initiator_depth;
    message.set_flow_control(rep.flow_control);
    message.set_srq(rep.srq);
  }
  message.set_target_ack_delay(rep.target_ack_delay);
  message.set_failover(rep.failover);
  message.set_rnr_retry_count(rep.rnr_retry_count);
  message.ca_guid = exchange_->endpoint->setup.node_guid;
  (void)put(message.private_data, rep.private_data);
  exchange_->local_qpn = rep.qpn;
  exchange_->enter(State::kRepSent);
  exchange_->post_repeated();
  return {};
}

base::Result<void> Connection::send_rtu(PrivateData data) {
  if (auto ok = check(exchange_, "RTU", {State::kRepReceived}); !ok) return ok;
  if (data.size() > sizeof(wire::CmRtu::private_data)) return invalid("RTU has room for 224 bytes");
  (void)put(exchange_->compose<wire::CmRtu>(exchange_->transaction).private_data, data);
  exchange_->enter(State::kEstablished);
  exchange_->post();
  return {};
}

base::Result<void> Connection::send_rej(const Rej& rej) {
  if (auto ok = check(exchange_, "REJ",
                      {State::kReqSent, State::kReqReceived, State::kRepReceived, State::kRepSent});
      !ok)
    return ok;
  if (rej.private_data.size() > sizeof(wire::CmRej::private_data) ||
      rej.ari.size() > sizeof(wire::CmRej::ari))
    return invalid("REJ has room for 72 bytes of information and 148 of private data");
  exchange_->compose_rej(rej);
  exchange_->post();
  exchange_->enter_timewait();
  return {};
}

base::Result<void> Connection::send_dreq(PrivateData data) {
  if (auto ok = check(exchange_, "DREQ", {State::kRepSent, State::kEstablished}); !ok) return ok;
  if (data.size() > sizeof(wire::CmDreq::private_data))
    return invalid("DREQ has room for 220 bytes");
  exchange_->begin_dreq(data);
  return {};
}

base::Result<void> Connection::send_drep(PrivateData data) {
  if (auto ok = check(exchange_, "DREP", {State::kDreqReceived}); !ok) return ok;
  if (data.size() > sizeof(wire::CmDrep::private_data))
    return invalid("DREP has room for 224 bytes");
  exchange_->send_drep(data);
  return {};
}

base::Result<void> Connection::establish() {
  if (auto ok = check(exchange_, "to establish", {State::kRepSent}); !ok) return ok;
  exchange_->mux().due.cancel(exchange_.get());
  exchange_->enter(State::kEstablished);
  return {};
}

base::Result<void> Connection::send_sidr_req(const SidrReq& req) {
  if (auto ok = check(exchange_, "SIDR_REQ", {State::kIdle}); !ok) return ok;
  Exchange& exchange = *exchange_;
  EndpointState& endpoint = *exchange.endpoint;
  if (req.timeout > kMaxCode) return invalid("a timeout must be a code of 0 .. 31");
  if (req.max_cm_retries > 15) return invalid("CM retries must be 0 .. 15");
  if (auto ok = check_request(endpoint, req.path, req.service_id, req.private_data); !ok) return ok;
  exchange.transaction = exchange.mux().transaction_base | exchange.local_id;
  auto& message = wire::begin<wire::CmSidrReq>(exchange.sent, exchange.transaction);
  if (auto ok = put(message.private_data, req.private_data); !ok) return ok;
  if (auto ok = endpoint.take_outgoing(); !ok) return ok;
  message.request_id = exchange.local_id;
  message.pkey = wire::kDefaultPkey;
  message.service_id = req.service_id;

  exchange.set_path(req.path);
  exchange.service_id = req.service_id;
  exchange.datagram = true;
  if (wire::port_space(req.service_id))
    if (const auto ends = wire::ip_ends(message.private_data))
      exchange.source_port = ends->source_port;
  exchange.response = time_of(std::min(req.timeout, kMaxResponse));
  exchange.max_retries = req.max_cm_retries;
  exchange.enter(State::kSidrReqSent);
  exchange.post_repeated();
  return {};
}

base::Result<void> Connection::send_sidr_rep(const SidrRep& rep) {
  if (auto ok = check(exchange_, "SIDR_REP", {State::kSidrReqReceived}); !ok) return ok;
  if (rep.qpn > kMax24) return invalid("queue pair numbers have 24 bits");
  if (rep.private_data.size() > sizeof(wire::CmSidrRep::private_data) ||
      rep.info.size() > sizeof(wire::CmSidrRep::info))
    return invalid("SIDR_REP has room for 72 bytes of information and 136 of private data");
  if (rep.status == wire::SidrStatus::kValid)
    if (auto ok = exchange_->endpoint->check_qpn(rep.qpn); !ok) return ok;
  exchange_->reply_sidr(rep);
  return {};
}

}  // namespace vrdma::qp1mux
