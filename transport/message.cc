#include "transport/message.h"

#include "transport/hole_guard.h"

namespace vrdma::transport {

using rdma::Outcome;
using verbs::WcStatus;

namespace {

// False if it cannot be mapped, or a page of it is not there: then its owner brings it.
bool read_in_place(const rdma::Piece& piece, uint8_t* to) {
  bool done = false;
  return HoleGuard::run([&] { done = rdma::read_piece(piece, to); }) && done;
}
bool write_in_place(const uint8_t* from, const rdma::Piece& piece) {
  bool done = false;
  return HoleGuard::run([&] { done = rdma::write_piece(from, piece); }) && done;
}

// Of one queue pair, on their way into memory that has to be reached; more are lost, as where the
// buffer of a network card is full.
constexpr uint32_t kMaxReceiving = 256;

}  // namespace

void MessageSender::abandon() {
  reading_ = ready_ = failed_ = false;
  message_ = nullptr;
  if (rdma::Buffers* buffers = qp_.context->device->buffers) buffers->leave(*this);
  alive_ = std::make_shared<int>(0);
  forget();
}

Progress MessageSender::execute(rdma::WorkRequest& request) {
  if (!admitted()) return {Progress::Kind::kPending};
  if (reading_) return {Progress::Kind::kPending};
  if (!ready_ && !failed_) {
    const Progress progress = collect(request);
    if (!ready_) return progress;
  }
  if (failed_) {
    abandon();
    return done(WcStatus::kLocalProtectionError);
  }
  const Progress progress = send(request, message_);
  if (progress.kind == Progress::Kind::kDone) abandon();
  return progress;
}

// Brings the payload together. ready_, or what to report.
Progress MessageSender::collect(rdma::WorkRequest& request) {
  if (!admit(request)) return done(WcStatus::kLocalQpOperationError);
  rdma::PieceList pieces;
  uint64_t length = 0;
  bool reached = false;
  if ((request.wqe.flags & ipc::kInline) != 0) {
    length = request.wqe.inline_length;
    pieces.count = length > 0 ? 1 : 0;
    pieces.pieces[0] = rdma::Piece::of(request.inline_data, length);
  } else {
    const Outcome outcome = rdma::gather(request.sges, request.wqe.num_sge, qp_.memory(),
                                         qp_.pd->handle, 0, &pieces, &length, &reached);
    if (outcome != Outcome::kDone) return done(WcStatus::kLocalProtectionError);
  }
  if (length > max_length()) return done(WcStatus::kLocalLengthError);
  message_ = rdma::make_buffer(qp_.context->device->buffers, headroom_ + length, *this);
  if (message_ == nullptr) return {Progress::Kind::kPending};
  rdma::Reach::Job job;
  job.buffer = message_;
  uint64_t offset = headroom_;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    if (piece.reached || !read_in_place(piece, message_->data() + offset))
      job.parts.push_back(rdma::part_of(piece, offset, *qp_.context->process));
    offset += piece.length;
  }
  if (job.parts.empty()) {
    ready_ = true;
    return {};
  }
  reading_ = true;
  job.done = [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired()) return;
    reading_ = false;
    ready_ = ok;
    failed_ = !ok;
    resume();
  };
  qp_.context->process->reach()->submit(std::move(job));
  return {Progress::Kind::kPending};
}

bool receive_message(rdma::Qp& target, const Message& message, ipc::RecvEntry entry,
                     std::shared_ptr<base::CpuMeter> payer) {
  if (!target.can_receive() || target.receiving >= kMaxReceiving) return false;
  rdma::Receive receive;
  const Outcome fetched =
      target.srq != nullptr
          ? target.srq->claim(&receive, &target)
          : rdma::fetch_receive(target.receives, target.inbox_head + target.receiving, &receive);
  if (fetched == Outcome::kPeerBroken && target.context->on_corrupt) target.context->on_corrupt();
  if (fetched != Outcome::kDone) return false;
  const auto lost = [&] {
    if (target.srq != nullptr) target.srq->give_back(receive.slot);
    return false;
  };
  entry.slot = receive.slot;
  entry.byte_len = static_cast<uint32_t>(message->size());

  rdma::PieceList pieces;
  bool reached = false;
  const Outcome outcome = rdma::scatter(receive, target.memory(), target.receive_pd().handle,
                                        message->size(), &pieces, &reached);
  // A sender must not be able to break the receiver with a long datagram: it is dropped.
  if (outcome != Outcome::kDone) return lost();
  rdma::Process& process = *target.context->process;
  rdma::Reach::Job job;
  job.write = true;
  job.payer = std::move(payer);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    if (piece.reached || !write_in_place(message->data() + offset, piece))
      job.parts.push_back(rdma::part_of(piece, offset, process));
    offset += piece.length;
  }
  if (job.parts.empty() && target.receiving == 0) {
    target.deliver(entry);
    if (target.srq != nullptr) target.srq->completed(receive.slot);
    return true;
  }
  // A copy of the receiver's: the sender does not pay for a page that does not come.
  if (!job.parts.empty()) {
    job.buffer = rdma::make_buffer(target.context->device->buffers, message->size());
    if (job.buffer == nullptr) return lost();
    *job.buffer = *message;
  }
  // In hand until its memory is written. A process's jobs run in order, so those behind it wait
  // there too, also with nothing to write.
  ++target.receiving;
  job.done = [context = target.context, handle = target.handle, alive = std::weak_ptr(target.alive),
              receive, entry, srq = target.srq,
              srq_alive = target.srq != nullptr ? std::weak_ptr(target.srq->alive)
                                                : std::weak_ptr<int>()](bool ok) mutable {
    rdma::Qp* qp = alive.expired() ? nullptr : context->qps.find(handle);
    const auto give_back = [&] {
      if (!srq_alive.expired()) srq->give_back(receive.slot);
    };
    if (qp == nullptr) return give_back();
    --qp->receiving;
    if (!qp->can_receive()) {  // in an error state the program flushes its receives itself
      return give_back();
    }
    if (!ok) entry.status = static_cast<uint8_t>(WcStatus::kLocalProtectionError);
    qp->deliver(entry);
    if (!srq_alive.expired()) srq->completed(receive.slot);
  };
  process.reach()->submit(std::move(job));
  return true;
}

}  // namespace vrdma::transport
