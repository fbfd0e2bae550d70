#include "qp1mux/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vrdma::qp1mux {
namespace {

// How long a SIDR_REP is kept to answer repetitions of its SIDR_REQ.
constexpr base::Duration kSidrLinger = std::chrono::milliseconds(500);
constexpr uint8_t kMaxTimewait = 21;  // a code, 8.6 s: how long a peer can keep an id allocated
// The same, 0.54 s, for a request of another host that came to nothing: what Linux asks for, and
// long enough to answer repetitions.
constexpr uint8_t kMaxTimewaitOfFruitless = 17;

template <size_t N>
void fill(uint8_t (&field)[N], PrivateData data) {
  if (!data.empty()) std::memcpy(field, data.data(), std::min(N, data.size()));
}

[[nodiscard]] bool is_counted(State state) {
  return state != State::kIdle && state != State::kClosed;
}

}  // namespace

const char* state_text(State state) {
  switch (state) {
    case State::kIdle:
      return "IDLE";
    case State::kReqSent:
      return "REQ_SENT";
    case State::kReqReceived:
      return "REQ_RECEIVED";
    case State::kRepReceived:
      return "REP_RECEIVED";
    case State::kRepSent:
      return "REP_SENT";
    case State::kEstablished:
      return "ESTABLISHED";
    case State::kDreqSent:
      return "DREQ_SENT";
    case State::kDreqReceived:
      return "DREQ_RECEIVED";
    case State::kTimewait:
      return "TIMEWAIT";
    case State::kSidrReqSent:
      return "SIDR_REQ_SENT";
    case State::kSidrReqReceived:
      return "SIDR_REQ_RECEIVED";
    case State::kClosed:
      return "CLOSED";
  }
  return "?";
}

base::Duration time_of(uint8_t code) {
  return std::chrono::nanoseconds(int64_t{4096} << std::min<uint8_t>(code, 31));
}

std::shared_ptr<Exchange> Exchange::make(std::shared_ptr<EndpointState> endpoint) {
  auto exchange = std::make_shared<Exchange>();
  MuxState& mux = *endpoint->mux;
  exchange->endpoint = std::move(endpoint);
  exchange->state = State::kIdle;
  exchange->local_id = mux.new_id();
  exchange->begun = mux.clock.now();
  exchange->timewait = time_of(0);
  mux.exchanges.emplace(exchange->local_id, exchange);
  return exchange;
}

std::shared_ptr<Exchange> Exchange::restore(std::shared_ptr<EndpointState> endpoint,
                                            const ConnectionRecord& record) {
  MuxState& mux = *endpoint->mux;
  auto exchange = std::make_shared<Exchange>();
  static_cast<ConnectionRecord&>(*exchange) = record;
  exchange->endpoint = std::move(endpoint);
  exchange->state = State::kIdle;
  if (!mux.exchanges.try_emplace(record.local_id, exchange).second) return nullptr;
  // The vdevice of a peer in this process may not be attached yet.
  exchange->foreign = record.remote ||
                      (mux.owner(exchange->endpoint->setup.fabric, record.path.remote) != nullptr &&
                       !mux.is_near(*exchange->endpoint, record.path.remote));
  exchange->enter(record.state);
  if (!record.active)
    exchange->know(record.datagram ? PeerKey::Kind::kSidr : PeerKey::Kind::kId, record.remote_id);
  if (record.stood || record.state != State::kTimewait)
    exchange->know(PeerKey::Kind::kQpn, record.remote_qpn);
  switch (record.state) {
    case State::kReqSent:
    case State::kRepSent:
    case State::kDreqSent:
    case State::kSidrReqSent:
      exchange->post_repeated();
      break;
    case State::kTimewait:
      exchange->enter_timewait();
      break;
    default:
      break;
  }
  return exchange;
}

// `one`: 1, or -1 as an unsigned number.
void Exchange::count(State at, uint32_t one) const {
  if (listener && is_waiting(at)) {
    const EndpointState* const sender = asker ? asker.get() : foreign ? nullptr : endpoint.get();
    const auto waiting =
        listener->waiting_of.try_emplace(requester_name(sender, path.remote)).first;
    listener->waiting += one;
    if ((waiting->second += one) == 0) listener->waiting_of.erase(waiting);
  }
  if (asker) {
    if (is_counted(at)) asker->half_open += one;
    return;
  }
  if (is_counted(at)) endpoint->connections += one;
  if (is_fruitless(at)) endpoint->fruitless += one;
  if (!is_pending(at)) return;
  endpoint->pending += one;
  if (foreign && !active) endpoint->strangers += one;
  if (of_unproven) endpoint->unproven += one;
}

// A request of another host that came to nothing.
bool Exchange::is_fruitless(State at) const {
  return at == State::kTimewait && foreign && !active && !stood;
}

void Exchange::enter(State next) {
  if (state == State::kIdle) of_unproven = !active && !is_proven();
  count(state, static_cast<uint32_t>(-1));
  if (next == State::kRepSent || next == State::kEstablished) asker.reset();
  count(next, 1);
  if (next == State::kEstablished) stood = true;
  state = next;
}

void Exchange::set_path(const Path& way) {
  path = way;
  remote = mux().owner(endpoint->setup.fabric, way.remote) == nullptr;
  foreign = !mux().is_near(*endpoint, way.remote);
}

void Exchange::know(PeerKey::Kind kind, uint32_t number) {
  if (number != 0) mux().peers.insert_or_assign({endpoint.get(), path.remote, number, kind}, this);
}

void Exchange::forget(PeerKey::Kind kind, uint32_t number) {
  const auto it = mux().peers.find({endpoint.get(), path.remote, number, kind});
  if (it != mux().peers.end() && it->second == this) mux().peers.erase(it);
}

void Exchange::post_repeated() {
  if (held) return;
  const base::TimePoint now = mux().clock.now();
  interval = std::min(mux().config.fast_resend, response);
  give_up = now + response * (max_retries + 1);
  if (is_answer_to_stranger())
    give_up = std::min(
        give_up, now + (is_proven() ? kMostOfStranger
                                    : std::clamp(2 * response, kLeastOfUnproven, kMostOfUnproven)));
  unasked = 0;
  retries_left = max_retries;
  mux().due.set(this, now + interval);
  post();
  mux().keep_time();
}

// Any host may have sent a REQ in the name of a third one, which the repeated answers then reach.
bool Exchange::is_answer_to_stranger() const { return foreign && state == State::kRepSent; }

void Exchange::prove_peer() const {
  if (foreign) endpoint->proven.add(path.remote, mux().clock.now());
}

bool Exchange::is_proven() const {
  return !foreign || endpoint->proven.has(path.remote, mux().clock.now());
}

void Exchange::repeat() {
  ++counters().repeated[Counters::index(
      static_cast<wire::CmAttribute>(uint16_t{sent.header.attribute_id}))];
  post();
}

void Exchange::release() {
  if (!std::exchange(held, false)) return;
  if (is_repeated(state)) post_repeated();
}

void Exchange::compose_rej(const Rej& rej) {
  const State from = state;
  auto& message = compose<wire::CmRej>(transaction);
  wire::Answered answered = wire::Answered::kOther;
  if (from == State::kReqReceived) {
    message.local_id = 0;
    answered = wire::Answered::kReq;
  } else if (from == State::kRepReceived) {
    answered = wire::Answered::kRep;
  }
  message.set_answered(answered);
  message.reason = static_cast<uint16_t>(rej.reason);
  message.set_ari_length(static_cast<uint8_t>(std::min(sizeof message.ari, rej.ari.size())));
  fill(message.ari, rej.ari);
  fill(message.private_data, rej.private_data);
}

void Exchange::begin_dreq(PrivateData data) {
  auto& message = compose<wire::CmDreq>((mux().transaction_base ^ 1ull << 32) | local_id);
  message.remote_qpn = remote_qpn;
  fill(message.private_data, data);
  stood = true;
  enter(State::kDreqSent);
  post_repeated();
}

void Exchange::send_drep(PrivateData data) {
  fill(compose<wire::CmDrep>(dreq_transaction).private_data, data);
  post();
  enter_timewait();
}

void Exchange::reply_sidr(const SidrRep& rep) {
  auto& message = wire::begin<wire::CmSidrRep>(sent, transaction);
  message.request_id = remote_id;
  message.status = static_cast<uint8_t>(rep.status);
  message.info_length = static_cast<uint8_t>(std::min(sizeof message.info, rep.info.size()));
  message.qpn = rep.qpn;
  message.service_id = service_id;
  message.qkey = rep.qkey;
  fill(message.info, rep.info);
  fill(message.private_data, rep.private_data);
  local_qpn = rep.qpn;
  timewait = kSidrLinger;
  post();
  enter_timewait();
}

void Exchange::enter_timewait() {
  enter(State::kTimewait);
  // After a rejection, the peer may try again with the same queue pair.
  if (!stood) forget(PeerKey::Kind::kQpn, remote_qpn);
  const base::Duration most = time_of(is_fruitless(state) ? kMaxTimewaitOfFruitless : kMaxTimewait);
  mux().due.set(this, mux().clock.now() + std::min(timewait, most));
  mux().keep_time();
}

void Exchange::close() {
  if (state == State::kClosed) return;
  const auto keep = shared_from_this();
  enter(State::kClosed);
  mux().due.cancel(this);
  forget(PeerKey::Kind::kId, remote_id);
  forget(PeerKey::Kind::kQpn, remote_qpn);
  forget(PeerKey::Kind::kSidr, remote_id);
  mux().exchanges.erase(local_id);
  listener.reset();
}

void Exchange::abandon() {
  handler = nullptr;
  if (!endpoint) return;
  switch (state) {
    case State::kIdle:
    case State::kSidrReqSent:
      return close();
    case State::kReqSent: {
      const base::ub64 guid = endpoint->setup.node_guid;
      Rej rej;
      rej.reason = wire::RejectReason::kTimeout;
      rej.ari = {reinterpret_cast<const uint8_t*>(&guid), sizeof guid};
      compose_rej(rej);
      post();
      return enter_timewait();
    }
    case State::kReqReceived:
    case State::kRepReceived:
    case State::kRepSent:
      compose_rej({});
      post();
      return enter_timewait();
    case State::kEstablished:
      return begin_dreq();
    case State::kDreqReceived:
      return send_drep();
    case State::kSidrReqReceived: {
      SidrRep rep;
      rep.status = wire::SidrStatus::kReject;
      return reply_sidr(rep);
    }
    case State::kDreqSent:
    case State::kTimewait:
    case State::kClosed:
      return;
  }
}

void Exchange::end_at_once() {
  const auto keep = shared_from_this();
  abandon();
  close();
  asker.reset();
  endpoint.reset();
}

void Exchange::on_due() {
  const auto keep = shared_from_this();
  if (state == State::kTimewait) {
    close();
    if (stood) emit({.kind = EventKind::kTimewaitExit});
    return;
  }
  if (held) return;
  const base::TimePoint now = mux().clock.now();
  if (now < give_up) {
    interval = std::min(2 * interval, response);
    mux().due.set(this, std::min(now + interval, give_up));
    if (is_answer_to_stranger() &&
        ++unasked > (is_proven() ? kMostUnasked : kMostUnaskedOfUnproven))
      return;
    return repeat();
  }
  switch (state) {
    case State::kReqSent:
    case State::kRepSent: {
      const bool req = state == State::kReqSent;
      const bool is_silent = is_answer_to_stranger() && !is_proven();
      const base::ub64 guid = endpoint->setup.node_guid;
      Rej rej;
      rej.reason = wire::RejectReason::kTimeout;
      rej.ari = {reinterpret_cast<const uint8_t*>(&guid), sizeof guid};
      compose_rej(rej);  // also for what comes too late
      if (!is_silent) post();
      enter_timewait();
      return emit({.kind = req ? EventKind::kReqError : EventKind::kRepError});
    }
    case State::kDreqSent:
      enter_timewait();
      return emit({.kind = EventKind::kDreqError});
    case State::kSidrReqSent:
      close();
      return emit({.kind = EventKind::kSidrReqError});
    default:  // nothing else repeats
      return;
  }
}

}  // namespace vrdma::qp1mux
