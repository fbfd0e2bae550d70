#include "transport/key_change.h"

#include <utility>

namespace vrdma::transport {

using verbs::WcStatus;

namespace {

bool binds(const rdma::WorkRequest& request) {
  return static_cast<verbs::Opcode>(request.wqe.opcode) == verbs::Opcode::kBindWindow;
}

}  // namespace

// What the rules forbid is not marked, so that of a marked request only two things can be true: it
// was carried out, or nothing was changed.
WcStatus KeyChange::change(const rdma::WorkRequest& request, rdma::Qp& qp, SendRing& ring) {
  if (binds(request)) {
    if (!rdma::may_bind(qp, request.wqe)) return WcStatus::kWindowBindError;
    ring.mark(ipc::Mark::kBegun);
    return rdma::bind_window(qp, request.wqe);
  }
  rdma::Mw* const mw = rdma::invalidatable(qp, request.wqe.imm);
  if (mw == nullptr) return WcStatus::kLocalQpOperationError;
  ring.mark(ipc::Mark::kBegun);
  rdma::unbind_window(*qp.context, *mw);
  return WcStatus::kSuccess;
}

void KeyChange::after_crash(const rdma::WorkRequest& request, const rdma::Qp& qp) {
  // A window of type 1 may be bound as often as its owner likes.
  const rdma::Mw* const mw = qp.context->mws.find(request.wqe.bind.window);
  carried_out_ = binds(request) ? mw != nullptr && mw->type_2 && mw->mr != nullptr
                                : rdma::invalidatable(qp, request.wqe.imm) == nullptr;
}

Progress KeyChange::execute(const rdma::WorkRequest& request, rdma::Qp& qp, SendRing& ring,
                            std::function<void()> resume) {
  if (begun_ == nullptr) {
    if (!std::exchange(carried_out_, false))
      if (const WcStatus status = change(request, qp, ring); status != WcStatus::kSuccess)
        return done(status);
    rdma::Qp* const only = binds(request) ? nullptr : &qp;
    begun_ = std::make_shared<Begun>(Begun{rdma::KeyUsers(*qp.context, only)});
    qp.context->process->reach()->barrier(
        [resume = std::move(resume), waits = std::weak_ptr(begun_)] {
          const auto begun = waits.lock();
          if (begun == nullptr) return;
          begun->reached_gone = true;
          resume();
        });
  }
  if (!begun_->users.gone()) return {Progress::Kind::kYield};
  if (!begun_->reached_gone) return {Progress::Kind::kPending};
  begun_.reset();
  return done(WcStatus::kSuccess);
}

}  // namespace vrdma::transport
