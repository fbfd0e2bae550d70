// The requester's half that takes answers, and finds out what was lost.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/net/requester.h"

namespace vrdma::transport::net {

using verbs::Opcode;
using verbs::WcStatus;
using wire::Operation;
using wire::psn_add;
using wire::psn_distance;

namespace {

constexpr uint32_t kLeastWindow = 32;  // packets
constexpr uint8_t kRnrForever = 7;
// Below this, a process that does not get the processor would look like a peer that is gone.
constexpr base::Duration kLeastTimeout = std::chrono::milliseconds(4);
constexpr base::Duration kLeastRecent = std::chrono::microseconds(50);
constexpr uint32_t kMostProbes = 10;  // doublings of the time between two
// A hole of more packets makes a peer that was not seen to keep any look like one that goes back;
// after as many recoveries it is looked at again.
constexpr uint32_t kDoubtfulHole = 32;
constexpr uint32_t kBelieved = 32;

base::Duration timeout_of(uint64_t nanoseconds) {
  return std::max(base::Duration(static_cast<int64_t>(nanoseconds)), kLeastTimeout);
}

bool is_read_response(Operation operation) {
  return operation >= Operation::kReadResponseFirst && operation <= Operation::kReadResponseOnly;
}

}  // namespace

// Those that are in memory. Until then another requester may have to ask for them again, and the
// responder, which remembers as many as may be on their way, must know them.
void Requester::forget_answers() {
  while (!answering_.empty()) {
    const Answering& oldest = answering_.front();
    if (psn_distance(psn_add(oldest.psn, oldest.count), oldest_) < 0) return;
    const Message* const message = find(oldest.psn);
    if (message != nullptr &&
        std::any_of(message->storing.begin(), message->storing.end(), [&oldest](uint32_t psn) {
          return ((psn - oldest.psn) & verbs::kPsnMask) < oldest.count;
        }))
      return;
    answering_.pop_front();
  }
}

// Completes what can be completed, in order. May end in clear().
void Requester::settle() {
  if (settling_) return;
  settling_ = true;
  while (!messages_.empty()) {
    Message& oldest = messages_.front();
    if (!oldest.storing.empty()) break;
    if (oldest.failure != WcStatus::kSuccess) {
      const uint32_t number = oldest.number;
      const WcStatus status = oldest.failure;
      clear();
      failed_ = true;
      memory_.complete(number, status, 0);
      break;
    }
    if (((oldest_ - oldest.psn) & verbs::kPsnMask) < oldest.count) break;
    const uint32_t number = oldest.number;
    const uint64_t answer = oldest.request.opcode == Opcode::kRdmaRead ? oldest.request.length
                            : verbs::is_atomic(oldest.request.opcode)  ? sizeof(uint64_t)
                                                                       : 0;
    messages_.pop_front();
    --begin_;
    memory_.complete(number, WcStatus::kSuccess, static_cast<uint32_t>(answer));
  }
  settling_ = false;
}

// The first request without an answer fails. The answers of those before it may be on their way
// into memory; these complete first (IBTA 9.9.2).
void Requester::fail(WcStatus status) {
  Message* const unanswered = find(oldest_);
  if (failed_ || unanswered == nullptr) return;
  failed_ = true;
  unanswered->failure = status;
  settle();
}

bool Requester::advance(uint32_t psn, base::TimePoint now) {
  const uint32_t before = oldest_;
  if (psn_distance(executed_, psn) > 0) executed_ = psn;
  while (oldest_ != executed_) {
    const Message* const message = find(oldest_);
    if (message == nullptr) break;
    uint32_t to = psn_add(oldest_, 1);
    if (has_answer(message->request.opcode)) {
      if (!answered_.contains(oldest_)) break;
      answered_.erase(oldest_);
    } else {
      const uint32_t rest = (message->end() - oldest_) & verbs::kPsnMask;
      to = psn_add(oldest_, std::min(rest, (executed_ - oldest_) & verbs::kPsnMask));
    }
    again_.erase(oldest_, to);
    oldest_ = to;
  }
  forget_answers();
  if (oldest_ != before) {
    progress_at_ = now;
    if (probes_ > 0) round_trip_.doubt();
    probes_ = retries_ = rnr_retries_ = 0;
    if (rnr_until_ && psn_distance(rnr_psn_, oldest_) > 0) rnr_until_.reset();
    round_trip_.answered(oldest_, now);
    grow_window((oldest_ - before) & verbs::kPsnMask);
  }
  judge_peer(executed_);
  const bool whole = oldest_ == executed_;
  settle();
  return whole;
}

void Requester::receive(const wire::Packet& packet, base::TimePoint now) {
  if (failed_ || !attributes_.reliable) return;
  if (packet.operation != Operation::kAcknowledge) return on_answer(packet, now);
  const uint32_t psn = packet.psn;
  switch (wire::ack_kind(packet.syndrome)) {
    case wire::AckKind::kAck:
      if (!in_flight(psn)) {
        if (psn_distance(next_, psn) >= 0) ++counters_.bad_response;
        return;
      }
      if (!advance(psn_add(psn, 1), now)) lost_answer(now);
      return;
    case wire::AckKind::kRnrNak:
      return on_rnr_nak(psn, packet.syndrome & 0x1f, now);
    case wire::AckKind::kNak:
      if (packet.syndrome == wire::kNakSequence) return on_nak(psn, now);
      return on_error(psn, packet.syndrome, now);
    case wire::AckKind::kReserved:
      ++counters_.bad_response;
  }
}

bool Requester::is_recent(base::TimePoint then, base::TimePoint now) const {
  return now - then < std::max(round_trip_.smoothed(), kLeastRecent);
}

void Requester::on_nak(uint32_t psn, base::TimePoint now) {
  if (!in_flight(psn) && psn != next_) return;
  ++counters_.packet_seq_err;
  ++losses_.packet_seq_err;
  if (!advance(psn, now)) lost_answer(now);
  if (failed_ || !in_flight(psn)) return;
  // It may have been on its way before what it asks for was sent again.
  if (again_.contains(psn)) return;
  if (recovering_ && psn_distance(psn, again_end_) > 0 && is_recent(again_at_, now)) return;
  recover(psn, Cause::kNak);
}

void Requester::on_rnr_nak(uint32_t psn, uint8_t timer, base::TimePoint now) {
  if (!in_flight(psn) || (rnr_until_ && rnr_psn_ == psn)) return;
  ++counters_.rnr_nak_retry_err;
  ++losses_.rnr_nak_retry_err;
  if (!advance(psn, now)) lost_answer(now);
  if (failed_ || !in_flight(psn)) return;
  if (attributes_.rnr_retry != kRnrForever && rnr_retries_ >= attributes_.rnr_retry)
    return fail(WcStatus::kRnrRetryExceeded);
  ++rnr_retries_;
  rnr_psn_ = psn;
  rnr_until_ = now + std::chrono::microseconds(wire::rnr_timer_us(timer));
}

void Requester::on_error(uint32_t psn, uint8_t syndrome, base::TimePoint now) {
  if (!in_flight(psn)) return;
  (void)advance(psn, now);
  if (failed_ || messages_.empty()) return;
  switch (syndrome) {
    case wire::kNakInvalidRequest:
      ++counters_.req_remote_invalid_request;
      return fail(WcStatus::kRemoteInvalidRequest);
    case wire::kNakRemoteAccess:
      ++counters_.req_remote_access_errors;
      return fail(WcStatus::kRemoteAccessError);
    case wire::kNakOperational:
      ++counters_.req_remote_operation_errors;
      return fail(WcStatus::kRemoteOperationError);
    default:
      ++counters_.bad_response;
  }
}

void Requester::on_answer(const wire::Packet& packet, base::TimePoint now) {
  const uint32_t psn = packet.psn;
  Message* const message = in_flight(psn) ? find(psn) : nullptr;
  if (message == nullptr || !has_answer(message->request.opcode)) {
    if (message != nullptr || psn_distance(next_, psn) >= 0) ++counters_.bad_response;
    return;
  }
  if (answered_.contains(psn)) return;
  const Opcode opcode = message->request.opcode;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint8_t word[sizeof packet.original];
  const uint8_t* bytes = packet.payload;
  bool fits = is_read_response(packet.operation);
  if (opcode == Opcode::kRdmaRead) {
    offset = uint64_t{(psn - message->psn) & verbs::kPsnMask} * attributes_.mtu;
    length = std::min<uint64_t>(attributes_.mtu, message->request.length - offset);
  } else if (verbs::is_atomic(opcode)) {
    fits = packet.operation == Operation::kAtomicAcknowledge;
    std::memcpy(word, &packet.original, sizeof word);
    bytes = word;
    length = sizeof word;
  }
  if (!fits || (!verbs::is_atomic(opcode) && packet.payload_length != length)) {
    ++counters_.bad_response;
    return;
  }
  if (length > 0) {
    switch (memory_.scatter(message->number, offset, bytes, static_cast<uint32_t>(length))) {
      case Access::kDone:
        break;
      case Access::kPending:
        message->storing.push_back(psn);
        break;
      case Access::kBusy:
        ++counters_.dropped_no_memory;
        return;
      case Access::kFailed:
        message->failure = WcStatus::kLocalProtectionError;
        break;
    }
  }
  answered_.insert(psn);
  if (!advance(psn_add(psn, 1), now)) lost_answer(now);
}

// The answer to the oldest packet is missing, and others behind it have come.
void Requester::lost_answer(base::TimePoint now) {
  const uint32_t psn = oldest_;
  if (failed_ || !in_flight(psn) || again_.contains(psn)) return;
  const bool known = lost_ && psn_distance(*lost_, psn) >= 0 && psn_distance(psn, lost_end_) > 0;
  if (known && is_recent(lost_at_, now)) return;
  ++counters_.implied_nak_seq_err;
  ++losses_.implied_nak_seq_err;
  if (!known) lost_end_ = end_of_hole(psn);
  lost_ = psn;
  lost_at_ = now;
  again_.insert(psn, end_of_hole(psn));
}

// Up to where answers are missing from `psn` on; no further than the request goes.
uint32_t Requester::end_of_hole(uint32_t psn) {
  const Message* const message = find(psn);
  return answered_.first(psn, message != nullptr ? piece_end(*message, psn) : psn_add(psn, 1));
}

// --- recovery ---

void Requester::recover(uint32_t psn, Cause cause) {
  const bool longer = recovering_ && psn == again_end_ && cause == Cause::kNak;
  if (!recovering_ && cause == Cause::kNak) shrink_window();
  proves_ = cause == Cause::kNak;
  seen_keeping_ = false;
  recovering_ = true;
  recovered_end_ = next_;
  if (longer) {
    hole_ = usual_hole_ = std::min(2 * hole_, kGoBackAfter);
    grew_ = true;
  } else {
    if (!std::exchange(grew_, false)) usual_hole_ = std::max(usual_hole_ / 2, 1u);
    hole_ = cause == Cause::kNak && peer_ == Peer::kKeeps ? usual_hole_ : 1;
  }
  again_end_ = psn;
  if (peer_ == Peer::kKeeps && hole_ >= kGoBackAfter) peer_ = Peer::kGoesBack;
  if (peer_ == Peer::kGoesBack && cause == Cause::kNak && ++believed_ >= kBelieved) {
    believed_ = 0;
    peer_ = Peer::kUnknown;
  }
  if (peer_ == Peer::kGoesBack && cause == Cause::kNak) return go_back(psn);
  asking_ = peer_ != Peer::kKeeps;
  add_again(psn);
}

// From `psn` on, what is lacking is sent again: hole_ packets, or the rest of a request for
// answers.
void Requester::add_again(uint32_t psn) {
  const Message* const message = find(psn);
  if (message == nullptr) return;
  const uint32_t left = (next_ - psn) & verbs::kPsnMask;
  again_.insert(psn, has_answer(message->request.opcode) ? end_of_hole(psn)
                                                         : psn_add(psn, std::min(hole_, left)));
}

void Requester::go_back(uint32_t psn) {
  recovering_ = true;
  asking_ = false;
  recovered_end_ = next_;
  again_end_ = psn;
  again_.insert(psn, next_);
  ++counters_.went_back;
}

// `executed`: the peer has told that it has executed all before it.
void Requester::judge_peer(uint32_t executed) {
  if (!recovering_) return;
  const int32_t beyond = psn_distance(again_end_, executed);
  // What is still missing are answers: they are requested again.
  const bool whole = oldest_ == executed;
  const bool over = psn_distance(recovered_end_, executed) >= 0;
  // Nothing else than what was sent before the recovery can have led there.
  const bool kept = proves_ && beyond > 0 && again_end_ != recovered_end_;
  if (kept) {
    if (!std::exchange(seen_keeping_, true)) ++counters_.kept_early;
    if (whole && (peer_ != Peer::kKeeps || asking_)) again_.clear();
    peer_ = Peer::kKeeps;
    asking_ = false;
  }
  if (over || (beyond > 0 && !proves_)) {
    recovering_ = asking_ = false;
    if (over && whole) again_.clear();
    return;
  }
  if (beyond != 0 || !again_.empty()) return;
  // The peer has got exactly what was sent again. Either what follows is lost too, of which a peer
  // that keeps packets tells by a NAK if something stands behind it, or it was dropped.
  if (!asking_ && proves_) return;
  hole_ = std::min(2 * hole_, kSpan);
  if (asking_ && hole_ > kDoubtfulHole) {
    if (proves_) peer_ = Peer::kGoesBack;
    return go_back(executed);
  }
  add_again(executed);
}

// Of a peer that goes back all that is on its way is lost with one packet.
void Requester::shrink_window() {
  const uint32_t less = peer_ == Peer::kGoesBack ? window_ / 2 : window_ / 8;
  window_ = std::max(std::min(kLeastWindow, most_window_), window_ - less);
  grown_ = 0;
}

void Requester::grow_window(uint32_t answered) {
  grown_ += answered;
  if (grown_ < window_ || window_ >= most_window_) return;
  grown_ = 0;
  window_ = std::min(most_window_, window_ + window_ / 16 + 1);
}

base::TimePoint Requester::silent_at() const {
  return std::max(sent_at_, progress_at_) +
         round_trip_.silence() * (1 << std::min(probes_, kMostProbes));
}

std::optional<base::TimePoint> Requester::deadline() const {
  if (failed_ || !attributes_.reliable || unanswered() == 0) return std::nullopt;
  if (rnr_until_) return rnr_until_;
  base::TimePoint at = silent_at();
  if (const uint64_t timeout = wire::ack_timeout_ns(attributes_.timeout); timeout != 0)
    at = std::min(at, progress_at_ + timeout_of(timeout));
  return at;
}

void Requester::tick(base::TimePoint now) {
  if (failed_ || !attributes_.reliable || unanswered() == 0) return;
  if (rnr_until_) {
    if (now < *rnr_until_) return;
    rnr_until_.reset();
    progress_at_ = sent_at_ = now;
    recover(rnr_psn_, Cause::kNoReceive);
    return;
  }
  const uint64_t timeout = wire::ack_timeout_ns(attributes_.timeout);
  if (timeout != 0 && now >= progress_at_ + timeout_of(timeout)) {
    if (!again_.empty() && again_at_ < progress_at_) {  // the last retry has not left yet
      progress_at_ = now;
      return;
    }
    ++counters_.local_ack_timeout_err;
    ++losses_.local_ack_timeout_err;
    if (retries_ >= attributes_.retry_cnt) return fail(WcStatus::kRetryExceeded);
    ++retries_;
    progress_at_ = sent_at_ = now;
    probes_ = 0;
    round_trip_.doubt();
    shrink_window();
    // The peer may only be slow, and all that is on its way, sent again, would keep it from
    // answering until the retries are used up.
    return recover(oldest_, Cause::kSilence);
  }
  if (now < silent_at()) return;
  ++counters_.probes;
  ++probes_;
  sent_at_ = now;
  recover(oldest_, Cause::kSilence);
}

}  // namespace vrdma::transport::net
