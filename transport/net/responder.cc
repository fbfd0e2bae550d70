#include "transport/net/responder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vrdma::transport::net {

using verbs::Opcode;
using wire::Operation;
using wire::packets_of;
using wire::psn_add;
using wire::psn_distance;

namespace {

constexpr uint32_t kMostRepeated = 16;  // of the last NAK
constexpr size_t kMostParts = 64;
// Packets after which one that is behind its turn is taken for one ahead: of a peer whose last 16
// million packets were lost.
constexpr uint64_t kMostLate = 1u << 16;
// A requester has at most half of all numbers on their way; the others are behind.
constexpr uint32_t kMostBehind = 1u << 23;

Opcode opcode_of(const wire::Packet& packet) {
  const wire::OperationInfo& about = wire::info(packet.operation);
  const bool imm = about.has(wire::OperationInfo::kImmDt);
  switch (about.family) {
    case wire::OperationInfo::Family::kSend:
      return imm                                     ? Opcode::kSendWithImm
             : about.has(wire::OperationInfo::kIeth) ? Opcode::kSendWithInvalidate
                                                     : Opcode::kSend;
    case wire::OperationInfo::Family::kWrite:
      return imm ? Opcode::kRdmaWriteWithImm : Opcode::kRdmaWrite;
    case wire::OperationInfo::Family::kRead:
      return Opcode::kRdmaRead;
    default:
      return packet.operation == Operation::kCompareSwap ? Opcode::kCompareSwap
             : packet.operation == Operation::kFetchAdd  ? Opcode::kFetchAdd
                                                         : Opcode::kAtomicWrite;
  }
}

uint8_t syndrome_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRemoteAccess:
      return wire::kNakRemoteAccess;
    case Verdict::kOperational:
      return wire::kNakOperational;
    default:
      return wire::kNakInvalidRequest;
  }
}

}  // namespace

Responder::Responder(const Attributes& attributes, Target& target, Counters& counters)
    : attributes_(attributes),
      target_(target),
      counters_(counters),
      expected_(attributes.rq_psn & verbs::kPsnMask) {}

Responder::Record Responder::record() const {
  Record record;
  record.next_psn = expected_;
  record.msn = msn_;
  record.open = open_;
  record.message = message_;
  record.offset = offset_;
  record.first_resource = first_resource_;
  record.resources = static_cast<uint32_t>(resources_.size());
  return record;
}

Responder::Record Responder::record_when_placed() const {
  Record record = this->record();
  record.next_psn = psn_add(expected_, step_.psns);
  if (step_.ends) record.msn = psn_add(msn_, 1);
  if (step_.family == Family::kAtomic) {
    ++record.resources;
  } else {
    record.offset += step_.length;
    record.open = !step_.ends;
  }
  return record;
}

void Responder::restore(const Record& record, std::span<const Resource> resources) {
  const bool begun = expected_ != (record.next_psn & verbs::kPsnMask);
  expected_ = record.next_psn & verbs::kPsnMask;
  msn_ = record.msn & verbs::kPsnMask;
  open_ = record.open;
  message_ = record.message;
  offset_ = record.offset;
  first_resource_ = record.first_resource;
  resources_.assign(resources.begin(), resources.end());
  if (!begun) return;
  turn_ = kMostLate;  // of an unreliable connection, packets that were executed may come again
  if (attributes_.reliable) nak_ = {expected_, wire::kNakSequence};
}

// --- receiving ---

void Responder::receive(const wire::Packet& packet) {
  if (!attributes_.reliable) return receive_unreliable(packet);
  if (over_) {
    // Also to a packet that was executed: a requester without an answer repeats its oldest one.
    if (repeated_++ < kMostRepeated) nak_ = over_;
    return;
  }
  const int32_t ahead = psn_distance(expected_, packet.psn);
  if (ahead < 0) return repeat(packet);
  if (ahead == 0 && !busy_) {
    lacks_receive_ = false;
    const wire::Packet* const only = &packet;
    execute({&only, 1});
    if (lacks_receive_) hold(packet, 0);
    return drain();
  }
  if (ahead > 0) ++counters_.out_of_sequence;
  if (attributes_.keeps_early || busy_) hold(packet, static_cast<uint32_t>(ahead));
  if (is_stuck() || said_gap_) return;
  said_gap_ = true;
  nak_ = {expected_, wire::kNakSequence};
}

// A message with a gap is lost (IBTA 9.8.2.2), and its sender does not learn of it. A packet that
// the network repeats or brings late would write to memory again, which the program may use for
// something else by then. So such a packet is dropped.
void Responder::receive_unreliable(const wire::Packet& packet) {
  const int32_t ahead = psn_distance(expected_, packet.psn);
  if (ahead < 0 && static_cast<uint64_t>(-int64_t{ahead}) <= std::min(turn_, kMostLate)) {
    ++counters_.duplicate_request;
    return;
  }
  if (busy_) {
    if (ahead >= 0) hold(packet, static_cast<uint32_t>(ahead));
    return;
  }
  if (ahead != 0) {
    ++counters_.out_of_sequence;
    drop_message();
    expected_ = packet.psn;
    if (ahead > 0) turn_ += static_cast<uint32_t>(ahead);
  }
  const wire::Packet* const only = &packet;
  execute({&only, 1});
  drain();
}

void Responder::hold(const wire::Packet& packet, uint32_t ahead) {
  if (ahead >= kMostHeld || held_.size() >= kMostHeld || held_.contains(turn_ + ahead) ||
      packet.payload_length > attributes_.mtu)
    return;
  Held held{packet, nullptr};
  if (packet.payload_length > 0) {
    held.payload = target_.hold(packet.payload_length);
    if (held.payload == nullptr) {
      ++counters_.dropped_no_memory;
      return;
    }
    std::memcpy(held.payload->data(), packet.payload, packet.payload_length);
    held.packet.payload = held.payload->data();
  }
  held_.emplace(turn_ + ahead, std::move(held));
  ++counters_.held;
}

// Executes what was kept, as far as there is no gap.
void Responder::drain() {
  while (!over_) {
    held_.erase(held_.begin(), held_.lower_bound(turn_));
    if (is_stuck() || held_.empty()) return;
    if (held_.begin()->first != turn_ && !drain_gap()) return;
    std::array<const wire::Packet*, kMostParts> packets;
    size_t count = 0;
    for (auto at = held_.begin();
         at != held_.end() && at->first == turn_ + count && count < kMostParts; ++at)
      packets[count++] = &at->second.packet;
    const uint64_t before = turn_;
    execute(std::span(packets).first(count));
    if (turn_ == before && !is_stuck()) return;
  }
}

// False: the peer must send what is missing.
bool Responder::drain_gap() {
  if (attributes_.reliable) {
    if (!said_gap_) nak_ = {expected_, wire::kNakSequence};
    said_gap_ = true;
    return false;
  }
  ++counters_.out_of_sequence;
  drop_message();
  expected_ = psn_add(expected_, static_cast<uint32_t>(held_.begin()->first - turn_));
  turn_ = held_.begin()->first;
  return true;
}

void Responder::resume() {
  if (lacks_receive_ && (held_.empty() || held_.begin()->first != turn_)) return;
  lacks_receive_ = asked_ = false;
  drain();
  asked_ = true;
}

void Responder::forget_pending() {
  busy_ = false;
  held_.clear();
  // What follows an answer that cannot be given cannot either.
  if (bringing_ == Bringing::kAsked) {
    bringing_ = Bringing::kNo;
    answers_.clear();
  }
}

// A packet that was executed before (IBTA 9.7.5.1.4 and 9.7.7.1).
void Responder::repeat(const wire::Packet& packet) {
  ++counters_.duplicate_request;
  const Family family = wire::info(packet.operation).family;
  if (family == Family::kSend || family == Family::kWrite) {
    // If the peer asks where the responder stands, its NAK may be lost.
    if (packet.ack_request && !held_.empty() && !is_stuck())
      nak_ = {expected_, wire::kNakSequence};
    else
      ack_due_ = true;
    return;
  }
  for (const Resource& resource : resources_)
    if (resource.contains(packet.psn)) return answer_again(resource, packet);
}

void Responder::answer_again(const Resource& resource, const wire::Packet& packet) {
  if (opcode_of(packet) != resource.request.opcode || packet.rkey != resource.request.rkey) return;
  if (answers_.size() > 2u * most_resources()) return;
  Answer answer{resource.request, packet.psn, 1, 0, resource.original, true};
  if (resource.request.opcode == Opcode::kRdmaRead) {
    // A part of what was asked for before.
    const uint64_t skipped =
        uint64_t{(packet.psn - resource.psn) & verbs::kPsnMask} * attributes_.mtu;
    if (packet.va != resource.request.remote_addr + skipped ||
        packet.dma_length > resource.request.length - skipped)
      return;
    answer.request.remote_addr = packet.va;
    answer.request.length = packet.dma_length;
    answer.count = packets_of(packet.dma_length, attributes_.mtu);
  }
  for (const Answer& each : answers_)
    if (each.psn == answer.psn && each.count == answer.count && each.sent == 0) return;
  answers_.push_back(answer);
}

// --- executing ---

bool Responder::is_in_order(const wire::Packet& packet) const {
  const wire::OperationInfo& about = wire::info(packet.operation);
  if (about.begins) return !open_;
  return open_ && (about.family == Family::kSend) == (message_.opcode == Opcode::kSend);
}

void Responder::execute(std::span<const wire::Packet* const> packets) {
  const wire::Packet& first = *packets.front();
  const Family family = wire::info(first.operation).family;
  step_ = {family, 1, 0, true, first.ack_request};
  if (!attributes_.reliable && wire::info(first.operation).begins) drop_message();
  if (!is_in_order(first)) return refuse_unasked();
  switch (family) {
    case Family::kSend:
    case Family::kWrite:
      return execute_data(packets);
    case Family::kRead:
      return execute_read(first);
    case Family::kAtomic:
      return execute_atomic(first);
    default:
      return refuse_unasked();
  }
}

void Responder::execute_data(std::span<const wire::Packet* const> packets) {
  const wire::Packet& first = *packets.front();
  const bool begins = wire::info(first.operation).begins;
  const bool writes = step_.family == Family::kWrite;
  PeerRequest message = message_;
  uint64_t offset = offset_;
  if (begins) {
    message = {};
    message.opcode = writes ? Opcode::kRdmaWrite : Opcode::kSend;
    message.remote_addr = first.va;
    message.rkey = first.rkey;
    message.length = writes ? first.dma_length : 0;
    offset = 0;
    if (message.length > verbs::kMaxMessage) return refuse_unasked();
  }
  std::array<Bytes, kMostParts> parts;
  step_.psns = 0;
  step_.ends = step_.ack_request = false;
  PeerRequest whole = message;
  for (const wire::Packet* packet : packets) {
    const wire::OperationInfo& about = wire::info(packet->operation);
    if (step_.psns > 0 && (step_.ends || about.begins || about.family != step_.family)) break;
    const uint64_t end = offset + step_.length + packet->payload_length;
    const bool in_bounds = writes ? (about.ends ? end == message.length : end < message.length)
                           : about.ends ? end <= verbs::kMaxMessage
                                        : end < verbs::kMaxMessage;
    if (!wire::length_fits(packet->operation, packet->payload_length, attributes_.mtu) ||
        !in_bounds) {
      if (step_.psns > 0) break;
      step_.psns = 1;
      return refuse_unasked();
    }
    parts[step_.psns++] = {packet->payload, packet->payload_length};
    step_.length += packet->payload_length;
    step_.ends = about.ends;
    step_.ack_request |= packet->ack_request;
    if (!about.ends) continue;
    whole.opcode = opcode_of(*packet);
    whole.imm = packet->imm;
    whole.solicited = packet->solicited;
  }
  if (!writes) whole.length = offset + step_.length;
  message_ = message;
  offset_ = offset;
  busy_ = true;
  const Verdict verdict =
      target_.place(whole, offset, std::span(parts).first(step_.psns), step_.ends);
  if (verdict != Verdict::kPending) finish(verdict, 0);
}

void Responder::placed(Verdict verdict, uint64_t original) {
  if (!busy_) return;
  finish(verdict, original);
  drain();
}

// Whether one more READ or atomic can be remembered. Those that are answered may be forgotten: the
// peer does not have more on its way than it was told (IBTA 9.7.7.1.4).
bool Responder::has_room() {
  if (most_resources() == 0) return false;
  while (resources_.size() >= most_resources()) {
    const Resource& oldest = resources_.front();
    for (const Answer& answer : answers_)
      if (!answer.again && oldest.contains(answer.psn)) return false;
    resources_.pop_front();
    ++first_resource_;
  }
  return true;
}

// Before `psns` more are executed: resources that the requester cannot ask for again, so that none
// of a later request with the same number is taken for theirs.
void Responder::forget_old(uint32_t psns) {
  while (!resources_.empty()) {
    const Resource& oldest = resources_.front();
    const uint32_t behind = (expected_ - oldest.psn - oldest.count) & verbs::kPsnMask;
    if (behind + psns <= kMostBehind) return;
    resources_.pop_front();
    ++first_resource_;
  }
}

void Responder::execute_read(const wire::Packet& packet) {
  PeerRequest read;
  read.opcode = Opcode::kRdmaRead;
  read.remote_addr = packet.va;
  read.rkey = packet.rkey;
  read.length = packet.dma_length;
  if (!attributes_.reliable || read.length > verbs::kMaxMessage || !has_room())
    return refuse_unasked();
  message_ = read;
  step_.psns = packets_of(read.length, attributes_.mtu);
  step_.ack_request = false;
  const Verdict verdict = target_.check(read);
  finish(verdict, 0);
}

void Responder::execute_atomic(const wire::Packet& packet) {
  PeerRequest atomic;
  atomic.opcode = opcode_of(packet);
  atomic.remote_addr = packet.va;
  atomic.rkey = packet.rkey;
  atomic.length = sizeof(uint64_t);
  const bool swaps = atomic.opcode == Opcode::kCompareSwap;
  atomic.compare_add = swaps ? packet.compare : packet.swap_add;
  atomic.swap = packet.swap_add;
  if (!attributes_.reliable || !has_room() ||
      !wire::length_fits(packet.operation, packet.payload_length, attributes_.mtu) ||
      (atomic.opcode == Opcode::kAtomicWrite && packet.dma_length != sizeof(uint64_t)))
    return refuse_unasked();
  message_ = atomic;
  step_.ack_request = false;
  busy_ = true;
  uint64_t original = 0;
  Verdict verdict;
  if (atomic.opcode == Opcode::kAtomicWrite) {
    const Bytes word(packet.payload, packet.payload_length);
    verdict = target_.place(atomic, 0, {&word, 1}, true);
  } else {
    verdict = target_.change(atomic, &original);
  }
  if (verdict != Verdict::kPending) finish(verdict, original);
}

// step_ was executed, or could not be.
void Responder::finish(Verdict verdict, uint64_t original) {
  busy_ = false;
  switch (verdict) {
    case Verdict::kDone:
      break;
    case Verdict::kPending:
      busy_ = true;
      return;
    case Verdict::kBusy:
      ++counters_.dropped_no_memory;
      if (!attributes_.reliable) break;
      return;
    case Verdict::kNoReceive:
      ++counters_.out_of_buffer;
      if (!attributes_.reliable) break;
      lacks_receive_ = true;
      if (std::exchange(lacking_, expected_) == expected_ && !asked_) return;
      nak_ = {expected_, static_cast<uint8_t>(wire::kRnrNak | (attributes_.min_rnr_timer & 31))};
      return;
    default:
      if (!attributes_.reliable) break;
      return refuse(syndrome_of(verdict));
  }
  const uint32_t psn = expected_;
  forget_old(step_.psns);
  expected_ = psn_add(expected_, step_.psns);
  turn_ += step_.psns;
  said_gap_ = false;
  if (nak_ && psn_distance(nak_->psn, expected_) > 0) {
    nak_.reset();
    ack_due_ = true;
  }
  if (verdict != Verdict::kDone) return drop_message();
  ack_due_ |= step_.ack_request;
  if (step_.ends) msn_ = psn_add(msn_, 1);
  switch (step_.family) {
    case Family::kSend:
    case Family::kWrite:
      offset_ += step_.length;
      open_ = !step_.ends;
      if (step_.ends && step_.family == Family::kWrite) ++counters_.rx_write_requests;
      return;
    case Family::kRead:
      ++counters_.rx_read_requests;
      break;
    default:
      ++counters_.rx_atomic_requests;
  }
  ack_due_ = false;  // the answer acknowledges what is before it
  resources_.push_back({message_, psn, step_.psns, original});
  answers_.push_back({message_, psn, step_.psns, 0, original, false});
}

// Of an unreliable connection.
void Responder::drop_message() {
  if (std::exchange(open_, false)) target_.forget();
}

void Responder::refuse(uint8_t syndrome) {
  switch (syndrome) {
    case wire::kNakRemoteAccess:
      ++counters_.resp_remote_access_errors;
      break;
    case wire::kNakOperational:
      ++counters_.resp_operation_errors;
      break;
    default:
      ++counters_.resp_invalid_request;
  }
  nak_ = over_ = Nak{expected_, syndrome};
  held_.clear();
  target_.forget();
}

void Responder::refuse_unasked() {
  finish(Verdict::kInvalidRequest, 0);
  if (attributes_.reliable) target_.broken();
}

// --- answering ---

void Responder::fill(wire::Packet* packet, Operation operation, uint32_t psn,
                     uint8_t syndrome) const {
  packet->operation = operation;
  packet->pkey = attributes_.pkey;
  packet->dest_qpn = attributes_.dest_qpn;
  packet->psn = psn;
  packet->syndrome = syndrome;
  packet->msn = msn_;
}

bool Responder::next(Burst* burst) {
  burst->count = 0;
  burst->bytes = nullptr;
  if (!answers_.empty()) {
    if (next_answer(burst)) return true;
    if (!answers_.empty()) return false;  // an ACK must not overtake it
  }
  if (nak_) {
    fill(&burst->add(), Operation::kAcknowledge, nak_->psn, nak_->syndrome);
    nak_.reset();
    ack_due_ = false;  // a NAK acknowledges what is before it
    return true;
  }
  if (!std::exchange(ack_due_, false)) return false;
  fill(&burst->add(), Operation::kAcknowledge, last_without_answer(), wire::kAckWithoutCredits);
  return true;
}

// Of those that were executed. A READ or an atomic is acknowledged by its answer alone: a requester
// may take an ACK with its number for that, and complete it without the data.
uint32_t Responder::last_without_answer() const {
  uint32_t psn = psn_add(expected_, verbs::kPsnMask);
  for (auto newest = resources_.rbegin(); newest != resources_.rend() && newest->contains(psn);
       ++newest)
    psn = psn_add(newest->psn, verbs::kPsnMask);
  return psn;
}

bool Responder::next_answer(Burst* burst) {
  Answer& answer = answers_.front();
  const PeerRequest& request = answer.request;
  if (verbs::is_atomic(request.opcode)) {
    wire::Packet& packet = burst->add();
    fill(&packet, Operation::kAtomicAcknowledge, answer.psn, wire::kAckWithoutCredits);
    packet.original = answer.original;
    answers_.pop_front();
    return true;
  }
  const bool reads = request.opcode == Opcode::kRdmaRead;
  const uint64_t offset = uint64_t{answer.sent} * attributes_.mtu;
  const uint32_t count =
      std::min(answer.count - answer.sent, std::min(Burst::kMost, kSlice / attributes_.mtu));
  const uint64_t rest = reads ? request.length - offset : 0;
  const auto length =
      static_cast<uint32_t>(std::min<uint64_t>(uint64_t{count} * attributes_.mtu, rest));
  if (length > 0) {
    const uint32_t psn = psn_add(answer.psn, answer.sent);
    if (bringing_ == Bringing::kAsked) return false;
    if (bringing_ == Bringing::kNo)
      brought_verdict_ = target_.bring(request, offset, length, answer.again, &brought_);
    bringing_ = Bringing::kNo;
    switch (brought_verdict_) {
      case Verdict::kDone:
        break;
      case Verdict::kPending:
        bringing_ = Bringing::kAsked;
        return false;
      case Verdict::kBusy:
        return false;
      default:
        // What the network repeated late: the requester may have had its answer, and the key ended.
        if (answer.again) {
          answers_.pop_front();
          return next(burst);
        }
        // The answer may be gone, if the queue pair went to an error state.
        expected_ = psn;
        refuse(syndrome_of(brought_verdict_));
        answers_.clear();
        return false;
    }
    burst->bytes = std::exchange(brought_, nullptr);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = answer.sent + i;
    const bool first = index == 0, last = index + 1 == answer.count;
    wire::Packet& packet = burst->add();
    fill(&packet,
         first && last ? Operation::kReadResponseOnly
         : first       ? Operation::kReadResponseFirst
         : last        ? Operation::kReadResponseLast
                       : Operation::kReadResponseMiddle,
         psn_add(answer.psn, index), wire::kAckWithoutCredits);
    if (length == 0) continue;
    packet.payload_length = std::min(attributes_.mtu, length - i * attributes_.mtu);
    packet.payload = burst->bytes->data() + size_t{i} * attributes_.mtu;
  }
  answer.sent += count;
  if (answer.sent == answer.count) answers_.pop_front();
  return true;
}

void Responder::brought(Verdict verdict, const rdma::Buffer& bytes) {
  if (bringing_ != Bringing::kAsked) return;
  bringing_ = Bringing::kReady;
  brought_verdict_ = verdict;
  brought_ = bytes;
}

}  // namespace vrdma::transport::net
