#include "transport/net/requester.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vrdma::transport::net {

using verbs::Opcode;
using verbs::WcStatus;
using wire::Operation;
using wire::packets_of;
using wire::psn_add;
using wire::psn_distance;

namespace {

constexpr uint32_t kAskEvery = 32;  // packets

uint32_t least(uint32_t a, uint32_t b, uint32_t c) { return std::min(a, std::min(b, c)); }

}  // namespace

Requester::Requester(const Attributes& attributes, Memory& memory, Counters& counters)
    : attributes_(attributes),
      memory_(memory),
      counters_(counters),
      post_psn_(attributes.sq_psn & verbs::kPsnMask),
      oldest_(post_psn_),
      executed_(post_psn_),
      next_(post_psn_) {
  set_window(attributes.window);
  read_piece_ = std::clamp(most_window_ / 2, 1u, kReadPiece / attributes.mtu);
}

void Requester::set_window(uint32_t packets) {
  most_window_ = std::clamp(packets, 1u, kSpan / 2);
  window_ = most_window_;
}

Requester::Record Requester::record() const {
  Record record{messages_.empty() ? post_psn_ : messages_.front().psn, oldest_,
                restored_end_.value_or(next_)};
  // What is on its way into memory is lost with the process.
  for (const Message& message : messages_) {
    if (psn_distance(message.psn, record.oldest_psn) <= 0) break;
    for (const uint32_t psn : message.storing)
      if (psn_distance(psn, record.oldest_psn) > 0) record.oldest_psn = psn;
  }
  return record;
}

void Requester::restore(const Record& record) {
  post_psn_ = record.request_psn & verbs::kPsnMask;
  oldest_ = executed_ = next_ = record.oldest_psn & verbs::kPsnMask;
  const uint32_t sent = (record.next_psn - oldest_) & verbs::kPsnMask;
  const uint32_t end = psn_add(oldest_, std::min(sent, kSpan / 2));
  if (end != post_psn_) restored_end_ = end;
}

void Requester::clear() {
  messages_.clear();
  begin_ = 0;
  again_.clear();
  answered_.clear();
  answering_.clear();
  slice_ = {};
  oldest_ = executed_ = post_psn_ = next_;
  failed_ = recovering_ = asking_ = false;
  probes_ = retries_ = rnr_retries_ = 0;
  rnr_until_.reset();
}

bool Requester::wants_request() const {
  return !failed_ && begin_ == messages_.size() && messages_.size() < kMostRequests &&
         unanswered() < window_;
}

void Requester::post(const Request& request) {
  Message& message = messages_.emplace_back();
  message.request = request;
  message.number = next_number_++;
  message.psn = post_psn_;
  message.count = packets_of(request.length, attributes_.mtu);
  post_psn_ = message.end();
  if (!restored_end_) return;
  // What a requester before us had sent of it.
  const uint32_t restored_end = *restored_end_;
  if (psn_distance(restored_end, post_psn_) >= 0) restored_end_.reset();
  if (psn_distance(message.end(), next_) >= 0) {  // all, and it is answered
    ++begin_;
    return settle();
  }
  const uint32_t count =
      std::min((message.end() - next_) & verbs::kPsnMask, (restored_end - next_) & verbs::kPsnMask);
  again_.insert(next_, psn_add(next_, count));
  for (uint32_t at = next_, end = psn_add(next_, count);
       has_answer(message.request.opcode) && at != end;) {
    const uint32_t piece = piece_end(message, at);
    const uint32_t to = psn_distance(piece, end) < 0 ? end : piece;
    answering_.push_back({at, (to - at) & verbs::kPsnMask});
    at = to;
  }
  next_ = psn_add(next_, count);
  if (next_ == message.end()) ++begin_;
}

// The end of what one request asks for. It depends on nothing but the message, so that a request
// that is sent again never goes beyond one that the responder knows.
uint32_t Requester::piece_end(const Message& message, uint32_t psn) const {
  if (message.request.opcode != Opcode::kRdmaRead) return psn_add(psn, 1);
  const uint32_t index = (psn - message.psn) & verbs::kPsnMask;
  return psn_add(message.psn, std::min(message.count, (index / read_piece_ + 1) * read_piece_));
}

Requester::Message* Requester::find(uint32_t psn) {
  for (Message& message : messages_)
    if (message.contains(psn)) return &message;
  return nullptr;
}

// --- sending ---

bool Requester::next(Burst* burst, base::TimePoint now) {
  burst->count = 0;
  burst->bytes = nullptr;
  if (failed_ || rnr_until_) return false;
  return send_again(burst, now) || send_new(burst, now);
}

bool Requester::send_again(Burst* burst, base::TimePoint now) {
  while (!failed_ && !again_.empty()) {
    const uint32_t psn = again_.first(oldest_, next_);
    Message* const message = psn != next_ ? find(psn) : nullptr;
    if (message == nullptr) {
      again_.clear();
      return false;
    }
    uint32_t most = 0;
    if (has_answer(message->request.opcode)) {
      // All that one request asks for, up to what has come of it: the responder may not know it.
      most = (end_of_hole(psn) - psn) & verbs::kPsnMask;
    } else {
      while (most < most_burst_ && again_.contains(psn_add(psn, most)) &&
             message->contains(psn_add(psn, most)))
        ++most;
    }
    if (most == 0) {
      again_.erase(psn);  // it was answered meanwhile
      continue;
    }
    const uint32_t count = fill(burst, *message, psn, most);
    if (count == 0) return false;
    again_.erase(psn, psn_add(psn, count));
    burst->packets[burst->count - 1].ack_request = true;
    unasked_ = 0;
    round_trip_.disturbed();
    counters_.retransmitted += burst->count;
    losses_.retransmitted += burst->count;
    again_at_ = sent_at_ = now;
    if (progress_at_ == base::TimePoint{}) progress_at_ = now;  // the first after a takeover
    const uint32_t end = psn_add(psn, count);
    if (recovering_ && psn_distance(again_end_, end) > 0) again_end_ = end;
    return true;
  }
  return false;
}

bool Requester::may_begin(const Message& message) const {
  if (has_answer(message.request.opcode) &&
      answering_.size() >= std::max<size_t>(attributes_.max_rd_atomic, 1))
    return false;
  if (!message.request.fence || next_ != message.psn) return true;
  for (size_t i = 0; i < begin_; ++i)
    if (has_answer(messages_[i].request.opcode)) return false;
  return true;
}

bool Requester::send_new(Burst* burst, base::TimePoint now) {
  if (failed_ || asking_ || begin_ >= messages_.size()) return false;
  Message& message = messages_[begin_];
  if (message.failure != WcStatus::kSuccess || !may_begin(message)) return false;
  const uint32_t waiting = unanswered();
  // With those whose answers are still being stored: another requester may have to ask for them
  // again, and for all that is behind them.
  const uint32_t kept = (next_ - record().oldest_psn) & verbs::kPsnMask;
  uint32_t room = kSpan;
  if (attributes_.reliable) {
    if (waiting >= window_ || kept >= kSpan / 2) return false;
    room = std::min(window_ - waiting, kSpan / 2 - kept);
  }
  if (message.request.opcode == Opcode::kRdmaRead) {
    const uint32_t piece = (piece_end(message, next_) - next_) & verbs::kPsnMask;
    if (piece > room && kept > 0) return false;
    room = piece;
  } else {
    room = std::min(room, most_burst_);
  }
  const uint32_t count = fill(burst, message, next_, room);
  if (count == 0) return false;
  if (has_answer(message.request.opcode)) answering_.push_back({next_, count});
  sent(next_, count, now);
  for (uint32_t i = 0; i < burst->count; ++i) {
    wire::Packet& packet = burst->packets[i];
    const bool last = i + 1 == burst->count;
    const bool full = last && attributes_.reliable && unanswered() >= window_;
    if (!attributes_.reliable) {
      packet.ack_request = false;
      continue;
    }
    ++unasked_;
    if (wire::info(packet.operation).ends || full ||
        unasked_ >= std::clamp(window_ / 4, 1u, kAskEvery))
      packet.ack_request = true;
    if (!packet.ack_request) continue;
    unasked_ = 0;
    round_trip_.sent(packet.psn, now);
  }
  if (!attributes_.reliable) {
    oldest_ = executed_ = next_;
    settle();
  }
  return true;
}

void Requester::sent(uint32_t from, uint32_t count, base::TimePoint now) {
  if (unanswered() == 0) {
    progress_at_ = now;
    probes_ = 0;
  }
  next_ = psn_add(from, count);
  sent_at_ = now;
  if (next_ == messages_[begin_].end()) ++begin_;
}

uint32_t Requester::fill(Burst* burst, Message& message, uint32_t psn, uint32_t most) {
  burst->count = 0;
  burst->bytes = nullptr;
  const Opcode opcode = message.request.opcode;
  const uint32_t index = (psn - message.psn) & verbs::kPsnMask;
  const uint32_t left = message.count - index;
  if (opcode == Opcode::kRdmaRead || verbs::is_atomic(opcode)) {
    const uint32_t count = std::min(most, (piece_end(message, psn) - psn) & verbs::kPsnMask);
    fill_question(burst, message, psn, count);
    return count;
  }
  uint32_t count = least(std::min(most, Burst::kMost), left, kSlice / attributes_.mtu);
  const uint64_t offset = uint64_t{index} * attributes_.mtu;
  const uint64_t rest = message.request.length - offset;
  const uint64_t wanted = std::min<uint64_t>(uint64_t{count} * attributes_.mtu, rest);
  if (wanted > 0) {
    if (!bring(message, offset, static_cast<uint32_t>(wanted))) return 0;
    const uint64_t there = slice_.offset + slice_.length - offset;
    count = std::min(count, packets_of(there, attributes_.mtu));
    burst->bytes = slice_.bytes;
  }
  for (uint32_t i = 0; i < count; ++i) {
    wire::Packet& packet = burst->add();
    fill_data(&packet, message, index + i);
    packet.psn = psn_add(psn, i);
    const uint64_t at = offset + uint64_t{i} * attributes_.mtu;
    packet.payload_length =
        static_cast<uint32_t>(std::min<uint64_t>(attributes_.mtu, message.request.length - at));
    if (packet.payload_length > 0) packet.payload = slice_.bytes->data() + (at - slice_.offset);
  }
  const uint64_t end = offset + uint64_t{count} * attributes_.mtu;
  if (slice_.state == Slice::State::kReady && end >= slice_.offset + slice_.length) slice_ = {};
  return count;
}

// A READ request or an atomic: one packet, which stands for `count` answers.
void Requester::fill_question(Burst* burst, const Message& message, uint32_t psn,
                              uint32_t count) const {
  const Request& request = message.request;
  wire::Packet& packet = burst->add();
  packet.pkey = attributes_.pkey;
  packet.dest_qpn = attributes_.dest_qpn;
  packet.psn = psn;
  packet.rkey = request.rkey;
  packet.va = request.remote_addr;
  packet.ack_request = true;
  if (verbs::is_atomic(request.opcode)) {
    const bool swaps = request.opcode == Opcode::kCompareSwap;
    packet.operation = swaps ? Operation::kCompareSwap : Operation::kFetchAdd;
    packet.swap_add = swaps ? request.swap : request.compare_add;
    packet.compare = swaps ? request.compare_add : 0;
    return;
  }
  const uint64_t offset = uint64_t{(psn - message.psn) & verbs::kPsnMask} * attributes_.mtu;
  packet.operation = Operation::kReadRequest;
  packet.va += offset;
  packet.dma_length = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{count} * attributes_.mtu, request.length - offset));
}

void Requester::fill_data(wire::Packet* packet, const Message& message, uint32_t index) const {
  const Request& request = message.request;
  const bool first = index == 0, last = index + 1 == message.count;
  packet->service = attributes_.reliable ? wire::Service::kRc : wire::Service::kUc;
  packet->pkey = attributes_.pkey;
  packet->dest_qpn = attributes_.dest_qpn;
  packet->imm = request.imm;
  packet->solicited = last && request.solicited && verbs::consumes_receive(request.opcode);
  if (first) {
    packet->va = request.remote_addr;
    packet->rkey = request.rkey;
    packet->dma_length = static_cast<uint32_t>(request.length);
  }
  if (request.opcode == Opcode::kAtomicWrite) {
    packet->operation = Operation::kAtomicWrite;
    return;
  }
  const bool imm = verbs::has_immediate(request.opcode);
  if (verbs::is_write(request.opcode)) {
    packet->operation = first && last ? (imm ? Operation::kWriteOnlyImm : Operation::kWriteOnly)
                        : first       ? Operation::kWriteFirst
                        : !last       ? Operation::kWriteMiddle
                        : imm         ? Operation::kWriteLastImm
                                      : Operation::kWriteLast;
    return;
  }
  const bool invalidates = request.opcode == Opcode::kSendWithInvalidate;
  packet->operation = first && last ? (imm           ? Operation::kSendOnlyImm
                                       : invalidates ? Operation::kSendOnlyInvalidate
                                                     : Operation::kSendOnly)
                      : first       ? Operation::kSendFirst
                      : !last       ? Operation::kSendMiddle
                      : imm         ? Operation::kSendLastImm
                      : invalidates ? Operation::kSendLastInvalidate
                                    : Operation::kSendLast;
}

// True: slice_ has at least the first packet's bytes. `message` may be gone if false.
bool Requester::bring(Message& message, uint64_t offset, uint32_t length) {
  if (slice_.state == Slice::State::kAsked) return false;
  if (slice_.state == Slice::State::kReady && slice_.number == message.number &&
      slice_.offset <= offset && offset < slice_.offset + slice_.length)
    return true;
  slice_ = {Slice::State::kAsked, message.number, offset, length, nullptr};
  rdma::Buffer bytes;
  switch (memory_.gather(message.number, offset, length, &bytes)) {
    case Access::kDone:
      slice_.bytes = std::move(bytes);
      slice_.state = Slice::State::kReady;
      return true;
    case Access::kPending:
      return false;
    case Access::kBusy:
      slice_ = {};
      return false;
    case Access::kFailed:
      slice_ = {};
      message.failure = WcStatus::kLocalProtectionError;
      settle();
      return false;
  }
  return false;
}

void Requester::gathered(const rdma::Buffer& bytes) {
  if (slice_.state != Slice::State::kAsked) return;
  slice_.bytes = bytes;
  slice_.state = Slice::State::kReady;
  if (bytes != nullptr) return;
  const uint32_t number = slice_.number;
  slice_ = {};
  for (Message& message : messages_)
    if (message.number == number) message.failure = WcStatus::kLocalProtectionError;
  settle();
}

void Requester::scattered(uint32_t number, uint64_t offset, bool ok) {
  for (Message& message : messages_) {
    if (message.number != number) continue;
    std::erase(message.storing,
               psn_add(message.psn, static_cast<uint32_t>(offset / attributes_.mtu)));
    if (!ok) message.failure = WcStatus::kLocalProtectionError;
    forget_answers();
    return settle();
  }
}

}  // namespace vrdma::transport::net
