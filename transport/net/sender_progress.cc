// What a NetSender notes, and how another one goes on from that (progress.h).
#include <cstring>
#include <utility>

#include "core/rdma/window.h"
#include "transport/net/sender.h"

namespace vrdma::transport::net {

using rdma::Outcome;
using rdma::Plan;
using rdma::WorkRequest;
using verbs::Opcode;
using verbs::WcStatus;

namespace {

uint32_t number_of(Note note) { return static_cast<uint32_t>(note); }
uint32_t note_of_resource(uint32_t resource) {
  return number_of(Note::kFirstResource) + resource % Responder::kMostResources;
}

uint64_t word_of(const std::array<uint8_t, sizeof(uint64_t)>& bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

template <class T>
void NetSender::put(uint32_t number, const T& note) {
  qp_.context->notes->put(qp_, number, {reinterpret_cast<const uint8_t*>(&note), sizeof note});
}

void NetSender::note_sent(uint32_t completing) {
  if (!requester_ || !notes_progress()) return;
  const SentNote now{requester_->record(), ring_.oldest() + completing};
  if (sent_ == now) return;
  sent_ = now;
  put(number_of(Note::kSent), now);
  qp_.context->notes->commit();
}

// The new resources, and the rest.
void NetSender::put_received(const ReceivedNote& note) {
  const auto& known = responder_.resources();
  const uint32_t first = note.record.first_resource;
  const uint32_t end = first + static_cast<uint32_t>(known.size());
  if (end - next_resource_ > known.size()) next_resource_ = first;
  for (; next_resource_ != end; ++next_resource_)
    put(note_of_resource(next_resource_), known[next_resource_ - first]);
  put(number_of(Note::kReceived), note);
  received_ = note;
}

void NetSender::note_received() {
  if (!notes_progress() || changing_ || redoing_) return;  // what is noted is ahead
  const auto claimed = receiver_.claimed();
  const ReceivedNote now{responder_.record(), claimed ? *claimed + 1 : 0};
  if (received_ == now && !in_step_) return;
  put_received(now);
  note_step_over();
}

void NetSender::note_step(const StepNote& step, std::optional<uint64_t> original) {
  const auto claimed = receiver_.claimed();
  const bool holds = claimed && step.kind != StepNote::Kind::kReceive;
  const ReceivedNote then{responder_.record_when_placed(), holds ? *claimed + 1 : 0};
  put_received(then);
  if (then.record.resources > responder_.resources().size()) {
    put(note_of_resource(next_resource_), responder_.resource_when_placed(original.value_or(0)));
    ++next_resource_;
  }
  put(number_of(Note::kStep), step);
  in_step_ = step.kind == StepNote::Kind::kWord;
  qp_.context->notes->commit();
}

void NetSender::note_step_over() {
  if (std::exchange(in_step_, false)) put(number_of(Note::kStep), StepNote());
  qp_.context->notes->commit();
}

// --- taking over ---

void NetSender::adopted() {
  after_takeover_ = true;
  if (notes_progress()) {
    adopt_received();
    adopt_sent();
  }
  resume();
}

void NetSender::adopt_received() {
  const rdma::Notes& notes = *qp_.context->notes;
  ReceivedNote note;
  if (!decode(notes.find(qp_, number_of(Note::kReceived)), &note)) return;  // nothing has come
  std::vector<Responder::Resource> resources(note.record.resources);
  for (uint32_t i = 0; i < note.record.resources; ++i)
    if (!decode(notes.find(qp_, note_of_resource(note.record.first_resource + i)), &resources[i]))
      return qp_.fail();
  responder_.restore(note.record, resources);
  next_resource_ = note.record.first_resource + note.record.resources;
  received_ = note;
  if (note.claimed != 0) receiver_.take_over(qp_, note.claimed - 1);
  StepNote step;
  if (qp_.can_receive() && decode(notes.find(qp_, number_of(Note::kStep)), &step))
    take(step, note.record.message);
}

void NetSender::take(const StepNote& step, const PeerRequest& message) {
  if (step.kind == StepNote::Kind::kWord) return take_word(step, message);
  if (step.kind != StepNote::Kind::kReceive || step.entry != qp_.completed_receives()) return;
  const auto opcode = static_cast<Opcode>(step.completion.opcode);
  if (opcode == Opcode::kSendWithInvalidate)
    if (rdma::Mw* const mw = rdma::invalidatable(qp_, step.completion.imm))
      rdma::unbind_window(*qp_.context, *mw);
  qp_.deliver(step.completion);
  if (qp_.srq != nullptr) qp_.srq->completed(step.completion.slot);
}

// If the word is neither what it was nor what it was to become, others have changed it since: what
// the dead worker did not do at once it did not do at all, and it had nanoseconds for that.
void NetSender::take_word(const StepNote& step, const PeerRequest& message) {
  in_step_ = true;
  WorkRequest request;
  Plan plan;
  const bool atomic = verbs::is_atomic(message.opcode);
  if (prepare(message, &request, &plan) != Outcome::kDone) return;
  const rdma::PieceList& all = atomic ? plan.source : plan.target;
  if (all.count != 1 || all.pieces[0].length < step.length || step.length == 0) return;
  rdma::Piece piece = all.pieces[0];
  piece.addr += piece.length - step.length;
  piece.length = step.length;
  if (!atomic && !piece.reached) {
    std::array<uint8_t, sizeof(uint64_t)> is{};
    bool there = false;
    const bool whole = HoleGuard::run([&] { there = rdma::read_piece(piece, is.data()); });
    if (whole && there && std::memcmp(is.data(), step.was.data(), step.length) == 0)
      (void)HoleGuard::run([&] { (void)rdma::write_piece(step.becomes.data(), piece); });
    return;
  }
  if (step.length != sizeof(uint64_t) || piece.addr % sizeof(uint64_t) != 0) return;
  const rdma::Buffer word = rdma::make_buffer(nullptr, sizeof(uint64_t));
  bool ok = false;
  redoing_ =
      !receiver_.change(exchange_of(request, word_of(step.was), word_of(step.becomes)), piece, word,
                        nullptr, when_done(receiving_, [this](bool) { redoing_ = false; }), &ok);
}

void NetSender::adopt_sent() {
  SentNote note;
  if (!qp_.can_send() || !decode(qp_.context->notes->find(qp_, number_of(Note::kSent)), &note))
    return;
  make_requester();
  requester_->restore(note.record);
  sent_ = note;
  if (!ring_.ours()) return;
  // Those that are complete and were not said to be.
  WorkRequest request;
  for (uint32_t left = note.oldest - ring_.oldest();
       left > 0 && left <= qp_.sq_depth && ring_.fetch(&request) == SendRing::Fetched::kRequest;
       --left)
    ring_.complete(request, WcStatus::kSuccess, answer_bytes(request));
  while (requester_->lacks_requests() && !waiting_ &&
         ring_.fetch(&request) == SendRing::Fetched::kRequest)
    begin(request);
}

uint32_t NetSender::answer_bytes(const WorkRequest& request) {
  const auto opcode = static_cast<Opcode>(request.wqe.opcode);
  if (verbs::is_atomic(opcode)) return sizeof(uint64_t);
  uint32_t bytes = 0;
  for (uint32_t i = 0; opcode == Opcode::kRdmaRead && i < request.wqe.num_sge; ++i)
    bytes += request.sges[i].length;
  return bytes;
}

}  // namespace vrdma::transport::net
