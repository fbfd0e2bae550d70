#include "transport/key_change.h"

namespace vrdma::transport {

using verbs::WcStatus;

Progress KeyChange::execute(const rdma::WorkRequest& request, rdma::Qp& qp, SerialSender& sender) {
  if (begun_ == nullptr) {
    rdma::Qp* only = nullptr;
    WcStatus status = WcStatus::kSuccess;
    if (static_cast<verbs::Opcode>(request.wqe.opcode) == verbs::Opcode::kBindWindow) {
      status = rdma::bind_window(qp, request.wqe);
    } else if (rdma::Mw* mw = rdma::invalidatable(qp, request.wqe.imm); mw != nullptr) {
      rdma::unbind_window(*qp.context, *mw);
      only = &qp;
    } else {
      status = WcStatus::kLocalQpOperationError;
    }
    if (status != WcStatus::kSuccess) return done(status);
    begun_ = std::make_shared<Begun>(Begun{rdma::KeyUsers(*qp.context, only)});
    qp.context->process->reach()->barrier([&sender, waits = std::weak_ptr(begun_)] {
      const auto begun = waits.lock();
      if (begun == nullptr) return;
      begun->reached_gone = true;
      sender.resume();
    });
  }
  if (!begun_->users.gone()) return {Progress::Kind::kYield};
  if (!begun_->reached_gone) return {Progress::Kind::kPending};
  begun_.reset();
  return done(WcStatus::kSuccess);
}

}  // namespace vrdma::transport
