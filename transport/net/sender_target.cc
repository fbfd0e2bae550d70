// The half of a NetSender that executes the peer's requests.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/net/sender.h"

namespace vrdma::transport::net {

using rdma::Outcome;
using rdma::Plan;
using rdma::WorkRequest;
using verbs::Opcode;

WorkRequest NetSender::request_of(const PeerRequest& message) {
  WorkRequest request;
  request.wqe = {};
  request.wqe.opcode = static_cast<uint8_t>(message.opcode);
  request.wqe.flags = message.solicited ? ipc::kSolicited : 0;
  request.wqe.imm = message.imm;
  request.wqe.rdma.remote_addr = message.remote_addr;
  request.wqe.rdma.rkey = message.rkey;
  request.wqe.rdma.compare_add = message.compare_add;
  request.wqe.rdma.swap = message.swap;
  return request;
}

Outcome NetSender::prepare(const PeerRequest& message, WorkRequest* request, Plan* plan) {
  *request = request_of(message);
  plan->opcode = message.opcode;
  plan->length = message.length;
  return prepare(*request, plan);
}

Outcome NetSender::prepare(const WorkRequest& request, Plan* plan) {
  plan->reached = false;
  plan->source.count = plan->target.count = 0;
  return receiver_.prepare(qp_, request, plan);
}

namespace {

// What Receiver::refuse() returns.
Verdict refusal(Outcome outcome) {
  if (outcome == Outcome::kRemoteAccess) return Verdict::kRemoteAccess;
  return outcome == Outcome::kReceiveProtection ? Verdict::kOperational : Verdict::kInvalidRequest;
}

Outcome memory_outcome(const Plan& plan) {
  return verbs::is_send(plan.opcode) ? Outcome::kReceiveProtection : Outcome::kRemoteAccess;
}

}  // namespace

Verdict NetSender::verdict_of(Outcome outcome, const WorkRequest& request, const Plan& plan) {
  const bool reliable = verbs::is_reliable(qp_.type);
  switch (outcome) {
    case Outcome::kDone:
      return Verdict::kDone;
    case Outcome::kNoReceive:
      if (reliable) wait_for_receive();
      return Verdict::kNoReceive;
    case Outcome::kPeerBroken:
      ++qp_.context->device->fabric->counters.rings_corrupt;
      if (qp_.context->on_corrupt) qp_.context->on_corrupt();
      return Verdict::kBusy;
    default:
      break;
  }
  if (!reliable) {
    receiver_.abandon();
    return Verdict::kInvalidRequest;
  }
  (void)receiver_.refuse(outcome, request, plan);
  return refusal(outcome);
}

// The same of what was pending: the responder hears of it before the queue pair goes to ERR, and
// the receive that failed stays in hand until then, because it completes with an error. An
// unreliable one goes on with the next message, for which nothing may be in hand.
template <class F>
void NetSender::fail_pending(Outcome outcome, const WorkRequest& request, const Plan& plan,
                             F tell) {
  if (!verbs::is_reliable(qp_.type)) return tell(verdict_of(outcome, request, plan));
  refusing_ = true;
  tell(refusal(outcome));
  refusing_ = false;
  (void)verdict_of(outcome, request, plan);
}

void NetSender::forget() {
  if (!refusing_) receiver_.abandon();
}

// Not by the receiver, which may not have seen any request yet.
void NetSender::broken() {
  qp_.raise(verbs::Event::kQpRequestError);
  qp_.fail();
}

Verdict NetSender::place(const PeerRequest& message, uint64_t offset,
                         std::span<const Responder::Bytes> parts, bool last) {
  WorkRequest request;
  Plan plan;
  const Outcome outcome = prepare(message, &request, &plan);
  if (outcome != Outcome::kDone) return verdict_of(outcome, request, plan);
  rdma::Process& process = *receiver_.home().process;
  size_t size = 0;
  for (const auto& part : parts) size += part.size();
  const bool ends = last && !plan.receives && notes_progress();
  const uint64_t front = size - (ends ? end_of(plan.target, size) : 0);
  uint8_t end[sizeof(uint64_t)];
  rdma::Reach::Job job;
  uint64_t done = 0;
  const auto add_left = [&job, &done](std::vector<rdma::Reach::Part> left) {
    for (rdma::Reach::Part& each : left) {
      each.offset += done;
      job.parts.push_back(std::move(each));
    }
  };
  for (auto part : parts) {
    const auto first = part.first(std::min(part.size(), front - std::min(front, done)));
    if (!first.empty())
      add_left(move_in_place(rdma::slice(plan.target, offset + done, first.size()), process, true,
                             const_cast<uint8_t*>(first.data())));
    done += first.size();
    part = part.subspan(first.size());
    if (part.empty()) continue;
    std::memcpy(end + (done - front), part.data(), part.size());
    done += part.size();
  }
  const std::span<const uint8_t> last_bytes(end, size - front);
  const bool by_itself =  // the end, by a thread
      front < size && (!job.parts.empty() || !place_end(plan, offset + front, last_bytes));
  if (by_itself) {
    const rdma::PieceList rest = rdma::slice(plan.target, offset + front, size - front);
    job.parts.push_back(rdma::part_of(rest.pieces[0], front, process));
  }
  if (job.parts.empty()) return placed_all(request, plan, last);
  job.buffer = rdma::make_buffer(qp_.context->device->buffers, size);
  if (job.buffer == nullptr) return Verdict::kBusy;
  uint8_t* to = job.buffer->data();
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  job.write = true;
  if (by_itself) job.mark = note_store(last_bytes);
  const auto placed = [this, request, plan, last](bool ok) {
    storing_ = false;
    const auto tell = [this](Verdict verdict) { responder_.placed(verdict); };
    if (!ok) return fail_pending(memory_outcome(plan), request, plan, tell);
    tell(placed_all(request, plan, last));
  };
  job.done = while_arriving(qp_, when_done(receiving_, placed));
  process.reach()->submit(std::move(job));
  return Verdict::kPending;
}

bool NetSender::place_end(const Plan& plan, uint64_t offset, std::span<const uint8_t> bytes) {
  const rdma::PieceList end = rdma::slice(plan.target, offset, bytes.size());
  const rdma::Piece& piece = end.pieces[0];
  if (piece.reached) return false;
  StepNote step;
  step.kind = StepNote::Kind::kWord;
  step.length = static_cast<uint32_t>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), step.becomes.begin());
  bool there = false;
  if (!HoleGuard::run([&] { there = rdma::read_piece(piece, step.was.data()); }) || !there)
    return false;
  note_step(step);
  if (!HoleGuard::run([&] { there = rdma::write_piece(step.becomes.data(), piece); }) || !there)
    return false;
  note_step_over();
  return true;
}

Verdict NetSender::placed_all(const WorkRequest& request, const Plan& plan, bool last) {
  if (!last) return Verdict::kDone;
  if (plan.receives && notes_progress()) {
    StepNote step;
    step.kind = StepNote::Kind::kReceive;
    step.entry = receiver_.next_entry();
    step.completion = rdma::receive_entry(request, plan);
    note_step(step);
  }
  receiver_.complete(request, plan);
  qp_.context->device->counters.traffic.port.receive(plan.length);
  return Verdict::kDone;
}

Verdict NetSender::change(const PeerRequest& atomic, uint64_t* original) {
  WorkRequest request;
  Plan plan;
  const Outcome outcome = prepare(atomic, &request, &plan);
  if (outcome != Outcome::kDone) return verdict_of(outcome, request, plan);
  const Verdict verdict = notes_progress() ? try_exchange(request, plan, original, true)
                                           : try_change(request, plan, original, true);
  if (verdict == Verdict::kDone || verdict == Verdict::kPending) count_answer(sizeof *original);
  return verdict;
}

// An operand in place may be on a page that is missing: its owner brings it, once.
Verdict NetSender::try_change(const WorkRequest& request, const Plan& plan, uint64_t* original,
                              bool bring_page) {
  const rdma::Buffer word = rdma::make_buffer(qp_.context->device->buffers, sizeof *original);
  if (word == nullptr) return Verdict::kBusy;
  const rdma::Piece& operand = plan.source.pieces[0];
  const auto value = [word] {
    uint64_t was = 0;
    std::memcpy(&was, word->data(), sizeof was);
    return was;
  };
  const auto tell = [this](Verdict verdict) { responder_.placed(verdict); };
  const auto done = [this, request, plan, value, tell](bool changed) {
    storing_ = false;
    if (!changed) return fail_pending(Outcome::kRemoteAccess, request, plan, tell);
    responder_.placed(Verdict::kDone, value());
  };
  rdma::Reach::Marker mark;
  if (operand.reached && notes_progress()) mark = note_change();
  bool ok = false;
  if (!receiver_.change(request, operand, word, nullptr, when_done(receiving_, done), &ok,
                        std::move(mark)))
    return Verdict::kPending;
  if (ok) {
    *original = value();
    return Verdict::kDone;
  }
  if (!bring_page) return Verdict::kBusy;  // it was taken away again: as if the packet were lost
  if (operand.space == nullptr) return verdict_of(Outcome::kRemoteAccess, request, plan);
  return bring_operand(request, plan);
}

namespace {

StepNote change_of(uint64_t was, uint64_t becomes) {
  StepNote step;
  step.kind = StepNote::Kind::kWord;
  step.length = sizeof was;
  std::memcpy(step.was.data(), &was, sizeof was);
  std::memcpy(step.becomes.data(), &becomes, sizeof becomes);
  return step;
}

// Others may change the word in between, but one of them gets on each time.
constexpr int kExchanges = 1000;

}  // namespace

Verdict NetSender::try_exchange(const WorkRequest& request, const Plan& plan, uint64_t* original,
                                bool bring_page) {
  const rdma::Piece& operand = plan.source.pieces[0];
  if (operand.space == nullptr) return verdict_of(Outcome::kRemoteAccess, request, plan);
  if (operand.reached) return try_change(request, plan, original, bring_page);
  for (int i = 0; i < kExchanges; ++i) {
    uint64_t was = 0, found = 0;
    bool there = false;
    const bool whole = HoleGuard::run(
        [&] { there = rdma::read_piece(operand, reinterpret_cast<uint8_t*>(&was)); });
    if (!whole || !there) return bring_page ? bring_operand(request, plan) : Verdict::kBusy;
    *original = was;
    const uint64_t becomes = rdma::changed(request, was);
    if (becomes == was) return Verdict::kDone;
    note_step(change_of(was, becomes), was);
    const WorkRequest exchange = exchange_of(request, was, becomes);
    if (!HoleGuard::run([&] { there = rdma::change_operand(exchange, operand, &found); }) || !there)
      return Verdict::kBusy;  // it was taken away: as if the packet were lost
    if (found != was) continue;
    note_step_over();
    return Verdict::kDone;
  }
  return Verdict::kBusy;
}

// Where it was reached, or was not there, when the request came.
void NetSender::exchange_in_place(const WorkRequest& request, const Plan& plan) {
  uint64_t was = 0;
  const Verdict verdict = notes_progress() ? try_exchange(request, plan, &was, false)
                                           : try_change(request, plan, &was, false);
  if (verdict != Verdict::kPending) responder_.placed(verdict, was);
}

// The operand is in place, on a page that is missing: its owner brings it, once.
Verdict NetSender::bring_operand(const WorkRequest& request, const Plan& plan) {
  rdma::Process& process = *receiver_.home().process;
  rdma::Reach::Job job;
  job.parts.push_back(rdma::part_of(plan.source.pieces[0], 0, process));
  job.buffer = rdma::make_buffer(qp_.context->device->buffers, sizeof(uint64_t));
  if (job.buffer == nullptr) return Verdict::kBusy;
  job.done = when_done(receiving_, [this, request, plan](bool there) {
    const auto tell = [this](Verdict verdict) { responder_.placed(verdict); };
    if (!there) return fail_pending(Outcome::kRemoteAccess, request, plan, tell);
    Plan now = plan;
    if (const Outcome outcome = prepare(request, &now); outcome != Outcome::kDone)
      return fail_pending(outcome, request, now, tell);
    exchange_in_place(request, now);
  });
  process.reach()->submit(std::move(job));
  return Verdict::kPending;
}

// A request without bytes has come, and its answer brings them.
void NetSender::count_answer(uint64_t length) {
  rdma::PortTraffic& port = qp_.context->device->counters.traffic.port;
  port.receive(0);
  port.send(length);
}

Verdict NetSender::check(const PeerRequest& read) {
  WorkRequest request;
  Plan plan;
  const Outcome outcome = prepare(read, &request, &plan);
  if (outcome == Outcome::kDone) count_answer(read.length);
  return verdict_of(outcome, request, plan);
}

Verdict NetSender::bring(const PeerRequest& read, uint64_t offset, uint32_t length, bool again,
                         rdma::Buffer* bytes) {
  WorkRequest request;
  Plan plan;
  const Outcome outcome = prepare(read, &request, &plan);
  if (outcome != Outcome::kDone)
    return again ? refusal(outcome) : verdict_of(outcome, request, plan);
  rdma::Buffer buffer = rdma::make_buffer(qp_.context->device->buffers, length, *this);
  if (buffer == nullptr) return Verdict::kBusy;
  *bytes = buffer;
  const auto tell = [this, buffer](Verdict verdict) { responder_.brought(verdict, buffer); };
  const bool moved =
      move(rdma::slice(plan.source, offset, length), *receiver_.home().process, nullptr, buffer, 0,
           nullptr, when_done(receiving_, [this, again, request, plan, tell](bool ok) {
             if (!ok && again) return tell(refusal(Outcome::kRemoteAccess));
             if (!ok) return fail_pending(Outcome::kRemoteAccess, request, plan, tell);
             tell(Verdict::kDone);
           }));
  return moved ? Verdict::kDone : Verdict::kPending;
}

// What would wait for a packet that never comes leaves half of the room to what makes progress.
rdma::Buffer NetSender::hold(size_t length) {
  rdma::Buffers* const buffers = qp_.context->device->buffers;
  if (buffers != nullptr && buffers->is_half_full()) return nullptr;
  return rdma::make_buffer(buffers, length);
}

}  // namespace vrdma::transport::net
