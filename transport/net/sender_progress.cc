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

ReceivedNote NetSender::received() const {
  const auto claimed = receiver_.claimed();
  return {responder_.record(), claimed ? *claimed + 1 : 0};
}

void NetSender::note_received() {
  if (!notes_progress() || storing_ || redoing_) return;  // what is noted is ahead
  const ReceivedNote now = received();
  if (received_ == now && !in_step_) return;
  put_received(now);
  note_step_over();
}

// `then`: the record when the step is done, of which one resource may not be known yet. That of a
// kChange is known when that is done.
void NetSender::put_step(const StepNote& step, const Responder::Record& then, uint64_t original) {
  if (step.kind != StepNote::Kind::kChange && then.resources > responder_.resources().size()) {
    put(note_of_resource(next_resource_), responder_.resource_when_placed(original));
    ++next_resource_;
  }
  put(number_of(Note::kStep), step);
  in_step_ = step.kind != StepNote::Kind::kReceive;
  qp_.context->notes->commit();
}

void NetSender::note_step(const StepNote& step, std::optional<uint64_t> original) {
  ReceivedNote then = received();
  then.record = responder_.record_when_placed();
  if (step.kind == StepNote::Kind::kReceive) then.claimed = 0;
  put_received(then);
  put_step(step, then.record, original.value_or(0));
}

rdma::Reach::Marker NetSender::note_store(std::span<const uint8_t> bytes) {
  StepNote step;
  step.kind = StepNote::Kind::kStore;
  step.length = static_cast<uint32_t>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), step.becomes.begin());
  return note_job(step);
}

rdma::Reach::Marker NetSender::note_change() {
  StepNote step;
  step.kind = StepNote::Kind::kChange;
  step.length = sizeof(uint64_t);
  return note_job(step);
}

rdma::Reach::Marker NetSender::note_job(StepNote step) {
  put_received(received());
  step.then = responder_.record_when_placed();
  const auto marker = [arena = qp_.context->arena, block = qp_.block, psn = step.then.next_psn](
                          ipc::Mark how, uint64_t stood) {
    block->stood.store(stood, std::memory_order_relaxed);
    block->storing.store(ipc::mark_word(how, psn), std::memory_order_release);
  };
  put_step(step, step.then, 0);
  marker(ipc::Mark::kNone, 0);  // not before: the last mark may be all that tells of the last step
  storing_ = true;
  return marker;
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
  if (!restore(note.record)) return qp_.fail();
  received_ = note;
  if (note.claimed != 0) receiver_.take_over(qp_, note.claimed - 1);
  StepNote step;
  if (qp_.can_receive() && decode(notes.find(qp_, number_of(Note::kStep)), &step))
    take(step, note.record.message);
}

bool NetSender::restore(const Responder::Record& record) {
  std::vector<Responder::Resource> resources(record.resources);
  for (uint32_t i = 0; i < record.resources; ++i)
    if (!decode(qp_.context->notes->find(qp_, note_of_resource(record.first_resource + i)),
                &resources[i]))
      return false;
  responder_.restore(record, resources);
  next_resource_ = record.first_resource + record.resources;
  return true;
}

void NetSender::take(const StepNote& step, const PeerRequest& message) {
  if (step.kind == StepNote::Kind::kWord) return take_word(step, message);
  if (step.kind == StepNote::Kind::kStore) return take_store(step);
  if (step.kind == StepNote::Kind::kChange) return take_change(step);
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
  const auto end = end_of_target(message, step.length);
  if (!end) return;
  const rdma::Piece& piece = *end;
  const bool atomic = verbs::is_atomic(message.opcode);
  if (!atomic && !piece.reached) {
    std::array<uint8_t, sizeof(uint64_t)> is{};
    bool there = false;
    const bool whole = HoleGuard::run([&] { there = rdma::read_piece(piece, is.data()); });
    if (whole && there && std::memcmp(is.data(), step.was.data(), step.length) == 0)
      (void)HoleGuard::run([&] { (void)rdma::write_piece(step.becomes.data(), piece); });
    return;
  }
  if (step.length != sizeof(uint64_t) || piece.addr % sizeof(uint64_t) != 0) return;
  const WorkRequest request = request_of(message);
  const rdma::Buffer word = rdma::make_buffer(nullptr, sizeof(uint64_t));
  bool ok = false;
  redoing_ =
      !receiver_.change(exchange_of(request, word_of(step.was), word_of(step.becomes)), piece, word,
                        nullptr, when_done(receiving_, [this](bool) { redoing_ = false; }), &ok);
}

// If there are neither the bytes from before nor those of the WRITE, others have stored there
// since, and the order is as if they had done so after the WRITE.
void NetSender::take_store(const StepNote& step) {
  in_step_ = true;
  const uint32_t mark = qp_.block->storing.load(std::memory_order_acquire);
  const uint64_t stood = qp_.block->stood.load(std::memory_order_relaxed);
  const auto is_done = [this, step] {
    if (!restore(step.then)) qp_.fail();
  };
  if (mark == ipc::mark_word(ipc::Mark::kDone, step.then.next_psn)) return is_done();
  if (mark != ipc::mark_word(ipc::Mark::kBegun, step.then.next_psn)) return;
  const auto end = end_of_target(step.then.message, step.length);
  if (!end) return;
  rdma::Process& process = *receiver_.home().process;
  rdma::Reach::Job look;
  look.parts.push_back(rdma::part_of(*end, 0, process));
  look.buffer = rdma::make_buffer(nullptr, step.length);
  redoing_ = true;
  look.done = when_done(receiving_, [this, step, stood, is_done, stands = look.buffer](bool ok) {
    redoing_ = false;
    const auto is = [&](const void* bytes) {
      return std::memcmp(stands->data(), bytes, step.length) == 0;
    };
    if (ok && (is(step.becomes.data()) || !is(&stood))) is_done();
  });
  process.reach()->submit(std::move(look));
}

// An atomic that was not begun is not done: others may have changed the word since, so that its
// answer is another one by now. Its peer sends it again.
void NetSender::take_change(const StepNote& step) {
  in_step_ = true;
  const uint32_t mark = qp_.block->storing.load(std::memory_order_acquire);
  const uint64_t stood = qp_.block->stood.load(std::memory_order_relaxed);
  const uint32_t psn = step.then.next_psn;
  if (mark == ipc::mark_word(ipc::Mark::kDone, psn)) return has_changed(step, stood);
  if (mark != ipc::mark_word(ipc::Mark::kBegun, psn)) return;
  // It is changed now if the word is what it was, and was changed if it is what it was to become.
  const auto end = end_of_target(step.then.message, sizeof(uint64_t));
  if (!end || end->addr % sizeof(uint64_t) != 0) return;
  const WorkRequest request = request_of(step.then.message);
  const uint64_t becomes = rdma::changed(request, stood);
  const rdma::Buffer word = rdma::make_buffer(nullptr, sizeof(uint64_t));
  const auto looked = [this, step, stood, becomes, word](bool ok) {
    redoing_ = false;
    uint64_t found = 0;
    std::memcpy(&found, word->data(), sizeof found);
    if (!ok) return;  // the memory has gone, which the peer learns when it sends the request again
    if (found == stood || found == becomes) return has_changed(step, stood);
    ++qp_.context->device->fabric->counters.requests_in_doubt;
    qp_.fail();
  };
  redoing_ = true;
  bool ok = false;
  if (receiver_.change(exchange_of(request, stood, becomes), *end, word, nullptr,
                       when_done(receiving_, looked), &ok))
    looked(ok);
}

void NetSender::has_changed(const StepNote& step, uint64_t original) {
  const Responder::Record& then = step.then;
  const Responder::Resource resource{then.message, wire::psn_add(then.next_psn, verbs::kPsnMask), 1,
                                     original};
  put(note_of_resource(then.first_resource + then.resources - 1), resource);
  qp_.context->notes->commit();
  qp_.block->storing.store(ipc::mark_word(ipc::Mark::kDone, then.next_psn));
  if (!restore(then)) qp_.fail();
}

std::optional<rdma::Piece> NetSender::end_of_target(const PeerRequest& message, uint32_t length) {
  WorkRequest request;
  Plan plan;
  if (prepare(message, &request, &plan) != Outcome::kDone || length == 0) return std::nullopt;
  const rdma::PieceList& all = verbs::is_atomic(message.opcode) ? plan.source : plan.target;
  if (all.count != 1 || all.pieces[0].length < length) return std::nullopt;
  rdma::Piece end = all.pieces[0];
  end.addr += end.length - length;
  end.length = length;
  return end;
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
