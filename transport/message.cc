#include "transport/message.h"

#include <utility>

#include "transport/move.h"

namespace vrdma::transport {

using rdma::Outcome;
using verbs::WcStatus;

void MessageSender::abandon() {
  if (std::exchange(reading_, false)) alive_ = std::make_shared<int>(0);
  ready_ = failed_ = false;
  message_ = nullptr;
  if (rdma::Buffers* buffers = qp_.context->device->buffers) buffers->leave(*this);
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
  ready_ = move(pieces, *qp_.context->process, nullptr, message_, headroom_, nullptr,
                [this, alive = std::weak_ptr(alive_)](bool ok) {
                  if (alive.expired()) return;
                  reading_ = false;
                  ready_ = ok;
                  failed_ = !ok;
                  resume();
                });
  reading_ = !ready_;
  return {Progress::Kind::kPending};
}

}  // namespace vrdma::transport
