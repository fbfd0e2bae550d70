#include "transport/shm/connected.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/rdma/window.h"
#include "core/rdma/xrc.h"
#include "transport/hole_guard.h"

namespace vrdma::transport {

using rdma::Outcome;
using rdma::Plan;
using verbs::WcStatus;

namespace {

constexpr uint64_t kSlice = kTurnBytes;  // copied without a look at what else there is

}  // namespace

void ConnectedSender::abandon() {
  receiver_.abandon();
  done_ = 0;
  stage_ = Stage::kStart;
  fill_ = Fill::kNone;
  hole_ = failed_ = false;
  if (rdma::Buffers* buffers = qp_.context->device->buffers) buffers->leave(*this);
  if (relaying_ != nullptr) rdma::Reach::interrupt(*std::exchange(relaying_, nullptr));
  // The answer to a job that is out goes nowhere.
  if (std::exchange(jobs_, 0) > 0) alive_ = std::make_shared<int>(0);
  buffer_ = found_ = nullptr;
}

ConnectedSender::~ConnectedSender() {
  abandon();
  waiting_.stop();
  ring_.block(false);
}

void ConnectedSender::kick() {
  if (qp_.link.out != nullptr && qp_.link.out->srq != nullptr) qp_.link.out->srq->check_limit();
  if (!waiting_.is_patient()) resume();
}

void ConnectedSender::receive_posted() {
  waiting_.unregister();
  resume();
}

void ConnectedSender::stop_waiting() {
  waiting_.stop();
  ring_.block(false);
  resume();
}

void ConnectedSender::link_changed() {
  stop_waiting();
  SerialSender::link_changed();
  if (!qp_.can_send()) forget();
}

// Also in a checkpoint, by rdma::begin_epoch(): then the next request may be another one.
void ConnectedSender::adopted() {
  SerialSender::adopted();
  forget();
}

// What is known of the request in hand beyond what was begun here and can be abandoned.
void ConnectedSender::forget() {
  key_change_.forget();
  receiver_.forget_invalidated();
  in_doubt_ = false;
}

void ConnectedSender::srq_gone(uint32_t srqn) {
  if (in_hand() != nullptr && in_hand()->wqe.srqn == srqn) link_changed();
}

std::optional<WcStatus> ConnectedSender::after_crash(rdma::WorkRequest& request,
                                                     const SendRing::Interrupted& interrupted) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  if (verbs::is_local(opcode)) {
    key_change_.after_crash(request, qp_);
    return {};
  }
  if (verbs::consumes_receive(opcode)) {
    if (delivered(request, interrupted.receive)) return WcStatus::kSuccess;
    // The key was checked before the mark was set. If the program set the mark, the receiver still
    // learns the truth: that nothing has this key.
    if (opcode == verbs::Opcode::kSendWithInvalidate && qp_.link.out != nullptr &&
        qp_.link.out->context->key_record.find(request.wqe.imm) == nullptr)
      receiver_.has_invalidated();
    return {};
  }
  if (verbs::is_atomic(opcode) && interrupted.mark == ipc::Mark::kChanged) {
    has_changed(request.wqe.old_value);
    return {};
  }
  if (written(request)) return WcStatus::kSuccess;
  if (interrupted.receive == SendRing::kOldValueStands &&
      (verbs::is_atomic(opcode) || is_reached_write(request))) {
    in_doubt_ = true;
    return {};
  }
  return give_up_in_doubt();
}

// What is left of an atomic is to bring its answer.
void ConnectedSender::has_changed(uint64_t old) {
  buffer_ = rdma::make_buffer(nullptr, sizeof old);
  std::memcpy(buffer_->data(), &old, sizeof old);
  stage_ = Stage::kChanged;
}

// It may have been done, or not: the worker died in the microsecond between.
WcStatus ConnectedSender::give_up_in_doubt() {
  in_doubt_ = false;
  ++qp_.context->device->fabric->counters.requests_in_doubt;
  return WcStatus::kRetryExceeded;
}

bool ConnectedSender::is_reached_write(rdma::WorkRequest& request) {
  Plan plan;
  return qp_.link.out != nullptr && prepare(request, &plan) == Outcome::kDone && plan.reached &&
         plan.opcode == verbs::Opcode::kRdmaWrite && plan.length > 0;
}

bool ConnectedSender::delivered(const rdma::WorkRequest& request, uint32_t index) const {
  if (qp_.link.out == nullptr) return false;
  if (const rdma::XrcDomain* domain = qp_.link.out->domain) {  // others have delivered there since
    const rdma::Srq* srq = domain->find(request.wqe.srqn);
    return srq != nullptr && srq->inbox_taken_over == index + 1;
  }
  const uint32_t head = qp_.link.out_direct
                            ? ipc::settle_head(qp_.link.outbox->ring, qp_.link.outbox->depth)
                            : qp_.link.out->completed_receives();
  return head == index + 1;
}

Outcome ConnectedSender::prepare(rdma::WorkRequest& request, Plan* plan) {
  const Outcome local = rdma::prepare_requester(request, {qp_.memory(), qp_.pd->handle}, plan);
  return local == Outcome::kDone ? receiver_.prepare(*qp_.link.out, request, plan) : local;
}

Progress ConnectedSender::execute(rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  if (verbs::is_local(opcode))
    return key_change_.execute(request, qp_, ring_, [this] { resume(); });
  // A requester without resources for READ and atomics does not begin one (IBTA 10.7.2.2).
  if ((opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(opcode)) &&
      qp_.attributes.max_rd_atomic == 0)
    return done(WcStatus::kLocalQpOperationError);
  if (!admitted()) return {Progress::Kind::kPending};
  const Progress progress = attempt(request);
  if (progress.kind == Progress::Kind::kDone) {
    waiting_.stop();
    in_doubt_ = false;
  }
  return progress;
}

// On an unreliable connection the message is lost, maybe in the middle, and its sender does not
// learn.
Progress ConnectedSender::lose() {
  abandon();
  return done(WcStatus::kSuccess);
}

Progress ConnectedSender::wait_for_receive(rdma::WorkRequest& request) {
  if (!verbs::is_reliable(qp_.type)) return lose();
  rdma::Qp& responder = *qp_.link.out;
  rdma::Srq* const srq = receiver_.srq();
  switch (waiting_.for_receive(srq != nullptr ? srq->waiters : responder.waiters,
                               srq != nullptr ? srq->block->waiter : responder.block->rq_waiter,
                               responder.attributes.min_rnr_timer)) {
    case Waiting::Verdict::kLook:
      ring_.block(true);
      return attempt(request);
    case Waiting::Verdict::kWait:
      return {Progress::Kind::kPending};
    case Waiting::Verdict::kGiveUp:
      break;
  }
  return done(WcStatus::kRnrRetryExceeded);
}

Progress ConnectedSender::wait_for_link() {
  if (!verbs::is_reliable(qp_.type)) return lose();
  if (waiting_.for_link() == Waiting::Verdict::kGiveUp) {
    abandon();  // a port may have gone down in the middle
    return done(WcStatus::kRetryExceeded);
  }
  ring_.block(true);
  return {Progress::Kind::kPending};
}

Progress ConnectedSender::attempt(rdma::WorkRequest& request) {
  if (qp_.link.out == nullptr) return wait_for_link();
  if (jobs_ > 0) return {Progress::Kind::kPending};
  if (stage_ >= Stage::kChanged) return answer(request);
  if (qp_.link.out->context->parked) {  // port_changed() when it is resumed
    ring_.block(true);
    return {Progress::Kind::kPending};
  }
  if (!qp_.carries()) return wait_for_link();
  Plan plan;
  const Outcome outcome = prepare(request, &plan);
  if (outcome != Outcome::kDone) return refuse(outcome, plan, request);
  if (relaying_ != nullptr) return relayed(request, plan);
  if (in_doubt_)
    return verbs::is_atomic(plan.opcode) ? step_doubtful_atomic(request, plan)
                                         : step_doubt(request, plan);
  if (fill_ == Fill::kLocal || fill_ == Fill::kRemote) return fill(request, plan);
  if (verbs::is_atomic(plan.opcode) ? !plan.reached : !plan.reached && plan.length <= kSlice) {
    if (!try_in_place([&] { return perform(request, plan); })) return not_in_place(request, plan);
    return finish(request, plan, plan.length);
  }
  if (verbs::is_atomic(plan.opcode)) return step_atomic(request, plan);
  if (plan.reached) return step_reached(request, plan);
  const uint64_t length = slice_length(plan);
  if (done_ + length == plan.length && plan.opcode == verbs::Opcode::kRdmaWrite)
    return try_in_place([&] { return perform(request, plan); }) ? finish(request, plan, length)
                                                                : not_in_place(request, plan);
  if (!try_in_place([&] {
        return rdma::copy_pieces(rdma::slice(plan.source, done_, length),
                                 rdma::slice(plan.target, done_, length));
      }))
    return not_in_place(request, plan);
  done_ += length;
  return go_on(request, plan, length);
}

Progress ConnectedSender::not_in_place(rdma::WorkRequest& request, const Plan& plan) {
  return hole_ ? fill(request, plan) : refuse(Outcome::kRemoteAccess, plan, request);
}

// Entered again after each job.
Progress ConnectedSender::fill(rdma::WorkRequest& request, const Plan& plan) {
  const bool to_local = plan.opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(plan.opcode);
  const rdma::PieceList& local = to_local ? plan.target : plan.source;
  const rdma::PieceList& remote = to_local ? plan.source : plan.target;
  const Outcome at_remote =
      verbs::is_send(plan.opcode) ? Outcome::kReceiveProtection : Outcome::kRemoteAccess;
  const uint64_t length = slice_length(plan);
  if (fill_ == Fill::kNone &&
      !bring(rdma::slice(local, done_, length), *qp_.context->process, Fill::kLocal))
    return {Progress::Kind::kPending};
  if (fill_ == Fill::kLocal) {
    if (failed_) return refuse(Outcome::kLocalProtection, plan, request);
    if (!bring(rdma::slice(remote, done_, length), *receiver_.home().process, Fill::kRemote))
      return {Progress::Kind::kPending};
  }
  if (fill_ == Fill::kFilled || failed_) return refuse(at_remote, plan, request);
  fill_ = Fill::kFilled;
  return {Progress::Kind::kAgain};
}

namespace {

// Whether all pages of a piece that is in place are there.
bool is_whole(const rdma::Piece& piece) {
  constexpr uint64_t kPage = 4096;
  return HoleGuard::run([&] {
    uint64_t run = 0;
    for (uint64_t done = 0; done < piece.length; done += run) {
      const uint8_t* place = piece.space->at(piece.addr + done, piece.length - done, &run);
      if (place == nullptr) return;
      for (uint64_t at = 0; at < run; at += kPage - (piece.addr + done + at) % kPage)
        (void)*static_cast<const volatile uint8_t*>(place + at);
    }
  });
}

}  // namespace

// Has the owner touch what is in place and not whole, and goes on to `then`; true if there is
// nothing of it.
bool ConnectedSender::bring(const rdma::PieceList& pieces, rdma::Process& process, Fill then) {
  rdma::Reach::Job job;
  uint64_t length = 0;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    if (piece.reached || piece.space == nullptr || is_whole(piece)) continue;
    job.parts.push_back(rdma::part_of(piece, length, process));
    length += piece.length;
  }
  if (!job.parts.empty() && (job.buffer = make_buffer(length)) == nullptr) return false;
  fill_ = then;
  if (job.parts.empty()) return true;
  ++jobs_;
  job.payer = qp_.context->device->meter;
  job.done = job_done();
  process.reach()->submit(std::move(job));
  return false;
}

// nullptr: there is no room, and the queue runs again when there is.
rdma::Buffer ConnectedSender::make_buffer(uint64_t length) {
  return rdma::make_buffer(qp_.context->device->buffers, length, *this);
}

// A slice is done, maybe in another way than it was begun, because keys have changed meanwhile.
Progress ConnectedSender::go_on(const rdma::WorkRequest& request, const Plan& plan,
                                uint64_t length) {
  fill_ = Fill::kNone;
  stage_ = Stage::kStart;
  failed_ = false;
  buffer_ = nullptr;
  if (done_ >= plan.length) return finish(request, plan, length);
  Progress progress{Progress::Kind::kAgain};
  progress.moved = length;
  return progress;
}

namespace {

// Where a piece that is in place begins, brought in so that the next access takes no fault; nullptr
// if it cannot be mapped.
uint8_t* touched(const rdma::Piece& piece) {
  uint64_t run = 0;
  uint8_t* place =
      piece.space != nullptr ? piece.space->at(piece.addr, piece.length, &run) : nullptr;
  if (place != nullptr) (void)*static_cast<const volatile uint8_t*>(place);
  return place;
}

// Brings the operand of an atomic in, with its cache line. The processor then changes it at once,
// and a signal that kills the worker seldom comes between the change and the mark after it.
bool take(const rdma::Piece& operand) {
  auto* const word = reinterpret_cast<uint64_t*>(touched(operand));
  if (word != nullptr) (void)__atomic_fetch_or(word, 0, __ATOMIC_RELAXED);
  return word != nullptr;
}

// Brings both ends of each piece in; for the result of an atomic, that is all of it.
bool touch_ends(const rdma::PieceList& list) {
  if (!rdma::map_pieces(list)) return false;
  for (uint32_t i = 0; i < list.count; ++i) {
    rdma::Piece piece = list.pieces[i];
    (void)touched(piece);
    piece.addr += piece.length - 1;
    piece.length = 1;
    (void)touched(piece);
  }
  return true;
}

// The end of a WRITE, where it is in place: what must be stored, and where.
struct End {
  uint8_t bytes[sizeof(uint64_t)];
  uint64_t length = 0;
  uint8_t* place = nullptr;
};
bool find_end(const Plan& plan, uint64_t from, End* end) {
  const rdma::PieceList source = rdma::slice(plan.source, from, plan.length - from);
  for (uint32_t i = 0; i < source.count; ++i) {
    if (!rdma::read_piece(source.pieces[i], end->bytes + end->length)) return false;
    end->length += source.pieces[i].length;
  }
  end->place = touched(rdma::slice(plan.target, from, end->length).pieces[0]);
  return end->place != nullptr;
}

}  // namespace

// A program may look for the end of what is written to it, and then write there itself. So between
// that end and the rest stands a mark, and what is written twice after a worker's death is only
// what nobody has seen. Of a worker that dies between the marks nobody knows what it has done:
// there stand the stores alone.
bool ConnectedSender::perform(const rdma::WorkRequest& request, const Plan& plan) {
  const bool atomic = verbs::is_atomic(plan.opcode);
  if (!atomic && (plan.opcode == verbs::Opcode::kRdmaRead || plan.receives || plan.length == 0))
    return rdma::perform(request, plan);
  if (atomic) {
    ring_.mark(ipc::Mark::kNone);  // brings its cache line in, too
    if (!touch_ends(plan.target) || !take(plan.source.pieces[0])) return false;
    ring_.mark(ipc::Mark::kBegun);
    fill_ = Fill::kFilled;  // it is not done twice, whatever is missing now
    if (!rdma::perform(request, plan)) return false;
  } else {
    const uint64_t front =
        plan.length - std::min(end_of(plan.target, plan.length), plan.length - done_);
    if (front > done_ && !rdma::copy_pieces(rdma::slice(plan.source, done_, front - done_),
                                            rdma::slice(plan.target, done_, front - done_)))
      return false;
    End end;
    if (!find_end(plan, front, &end)) return false;
    ring_.mark(ipc::Mark::kBegun);
    rdma::copy_ordered(end.place, end.bytes, end.length);
  }
  ring_.mark(ipc::Mark::kDone);
  return true;
}

// If the end has the value that the request stores, it was written, or need not be.
bool ConnectedSender::written(rdma::WorkRequest& request) {
  Plan plan;
  End end;
  return qp_.link.out != nullptr && prepare(request, &plan) == Outcome::kDone && !plan.reached &&
         verbs::is_write(plan.opcode) && plan.length > 0 && try_in_place([&] {
           return find_end(plan, plan.length - end_of(plan.target, plan.length), &end) &&
                  std::memcmp(end.place, end.bytes, end.length) == 0;
         });
}

uint64_t ConnectedSender::slice_length(const Plan& plan) const {
  const uint64_t left = plan.length - done_;
  if (!plan.reached) return std::min(left, kSlice);
  const uint64_t end =
      plan.opcode == verbs::Opcode::kRdmaWrite && left > 0 ? end_of(plan.target, plan.length) : 0;
  return std::min(left > end ? left - end : left, kReachedSlice);
}

// An atomic with an operand or a result that must be reached. A reached operand is looked at before
// anything is begun: its page may be long in coming, and what hangs there can still be taken back.
Progress ConnectedSender::step_atomic(rdma::WorkRequest& request, const Plan& plan) {
  const rdma::Piece& operand = plan.source.pieces[0];
  rdma::Process& responder = *receiver_.home().process;
  if (stage_ == Stage::kStart) {
    if (!operand.reached && !try_in_place([&] { return touched(operand) != nullptr; }))
      return not_in_place(request, plan);
    buffer_ = make_buffer(sizeof(uint64_t));
    if (buffer_ == nullptr) return {Progress::Kind::kPending};
    stage_ = Stage::kRead;
    if (operand.reached && !move(plan.source, responder, nullptr, buffer_))
      return {Progress::Kind::kPending};
  }
  if (failed_) return refuse(Outcome::kRemoteAccess, plan, request);
  stage_ = Stage::kChanged;
  ++jobs_;
  bool ok = false;
  const auto mark = ring_.marker(ipc::Mark::kChanged);
  if (!operand.reached) ring_.mark(ipc::Mark::kBegun);
  if (!receiver_.change(request, operand, buffer_, qp_.context->device->meter, job_done(), &ok,
                        if_it_goes_on(mark)))
    return {Progress::Kind::kPending};
  if (ok) {
    uint64_t old = 0;
    std::memcpy(&old, buffer_->data(), sizeof old);
    mark(ipc::Mark::kDone, old);
  }
  --jobs_;
  failed_ = !ok;
  return answer(request);
}

// Brings the operand's old value. That a dead worker began with an atomic is what the program's
// memory says, so the request's own half is prepared here, as if for the first time.
Progress ConnectedSender::answer(rdma::WorkRequest& request) {
  Plan plan;
  plan.opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  plan.reached = plan.receives = false;
  if (stage_ == Stage::kChanged) {
    if (failed_) return refuse(Outcome::kRemoteAccess, plan, request);
    stage_ = Stage::kAnswered;
    const Outcome found = rdma::prepare_requester(request, {qp_.memory(), qp_.pd->handle}, &plan);
    if (found != Outcome::kDone) return refuse(found, plan, request);
    if (!move(plan.target, *qp_.context->process, &qp_, buffer_)) return {Progress::Kind::kPending};
  }
  if (failed_) return refuse(Outcome::kLocalProtection, plan, request);
  plan.length = sizeof(uint64_t);
  return finish(request, plan, plan.length);
}

Progress ConnectedSender::finish(const rdma::WorkRequest& request, const Plan& plan,
                                 uint64_t moved) {
  if (plan.receives) ring_.mark(ipc::Mark::kBegun, receiver_.next_entry());
  receiver_.publish(request, plan);
  abandon();
  const bool answers = plan.opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(plan.opcode);
  return done(WcStatus::kSuccess, answers ? plan.length : 0, moved);
}

Progress ConnectedSender::refuse(Outcome outcome, const Plan& plan, rdma::WorkRequest& request) {
  if (outcome == Outcome::kNoReceive) return wait_for_receive(request);
  if (outcome == Outcome::kPeerBroken) {
    // On a direct link the number of the next receive is what the initiator's outbox says.
    const bool own =
        qp_.link.out_direct && !ipc::is_sound(*qp_.link.outbox->ring, qp_.link.outbox->depth);
    rdma::Context& guilty = own ? *qp_.context : receiver_.home();
    ++guilty.device->fabric->counters.rings_corrupt;
    abandon();
    if (guilty.on_corrupt) guilty.on_corrupt();
    return wait_for_link();
  }
  // Of a process that dies the memory goes before its queue pairs.
  if ((outcome == Outcome::kRemoteAccess || outcome == Outcome::kReceiveProtection) &&
      receiver_.home().process->has_died()) {
    abandon();
    return wait_for_link();
  }
  WcStatus status = WcStatus::kSuccess;
  if (outcome == Outcome::kLocalLength)
    status = WcStatus::kLocalLengthError;
  else if (outcome == Outcome::kLocalProtection)
    status = WcStatus::kLocalProtectionError;
  else if (verbs::is_reliable(
               qp_.type))  // else the message is dropped, and its sender learns nothing
    status = receiver_.refuse(outcome, request, plan);
  abandon();
  return done(status);
}

}  // namespace vrdma::transport
