#include "transport/receiver.h"

#include <cstring>
#include <utility>

#include "core/rdma/window.h"
#include "core/rdma/xrc.h"

namespace vrdma::transport {

using rdma::Outcome;
using verbs::WcStatus;

void Receiver::abandon() {
  if (claimed_from_ != nullptr) qp_->give_back(*claimed_from_, receive_.slot);
  claimed_from_ = nullptr;
}

void Receiver::take_over(rdma::Qp& qp, uint32_t slot) {
  rdma::Srq* const srq = qp.srq;
  if (srq == nullptr || slot >= srq->depth ||
      srq->receives.claims->words()[slot].load() != ipc::kClaimedByWorker ||
      rdma::read_receive(srq->receives, slot, &receive_) != Outcome::kDone)
    return;
  qp_ = &qp;
  home_ = qp.context;
  srq_ = claimed_from_ = srq;
}

uint32_t Receiver::next_entry() const {
  return qp_->domain != nullptr ? srq_->inbox_head : qp_->completed_receives();
}

Outcome Receiver::prepare(rdma::Qp& qp, const rdma::WorkRequest& request, rdma::Plan* plan) {
  const bool xrc = qp.domain != nullptr;
  qp_ = &qp;
  srq_ = xrc ? qp.domain->find(request.wqe.srqn) : qp.srq;
  if (xrc && srq_ == nullptr) return Outcome::kRemoteInvalid;
  home_ = xrc ? srq_->context : qp.context;
  rdma::Responder responder;
  responder.memory = home_->memory();
  responder.pd = xrc ? srq_->pd->handle : qp.pd->handle;
  responder.qpn = qp.qpn;
  responder.access = qp.block->access.load(std::memory_order_relaxed);
  responder.receive_pd = srq_ != nullptr ? srq_->pd->handle : qp.pd->handle;
  responder.receives = qp.receives;
  responder.next_receive = qp.completed_receives();
  if (srq_ != nullptr && verbs::consumes_receive(plan->opcode)) {
    if (claimed_from_ == nullptr) {
      const Outcome outcome = srq_->claim(&receive_, xrc ? nullptr : &qp);
      if (outcome != Outcome::kDone) return outcome;
      claimed_from_ = srq_;
    }
    responder.claimed = &receive_;
  }
  const Outcome outcome = rdma::prepare_responder(request, responder, plan);
  if (outcome == Outcome::kDone && plan->opcode == verbs::Opcode::kSendWithInvalidate &&
      !invalidated_ && rdma::invalidatable(qp, request.wqe.imm) == nullptr)
    return Outcome::kRemoteAccess;
  return outcome;
}

bool Receiver::change(const rdma::WorkRequest& request, const rdma::Piece& operand,
                      const rdma::Buffer& buffer, std::shared_ptr<base::CpuMeter> payer,
                      std::function<void(bool ok)> done, bool* ok, rdma::Reach::Marker mark) const {
  if (!operand.reached) {
    uint64_t old = 0;
    bool changed = false;
    *ok =
        HoleGuard::run([&] { changed = rdma::change_operand(request, operand, &old); }) && changed;
    std::memcpy(buffer->data(), &old, sizeof old);
    return true;
  }
  rdma::Reach::Job job;
  job.parts.push_back(rdma::part_of(operand, 0, *home_->process));
  job.buffer = buffer;
  job.payer = std::move(payer);
  job.mark = std::move(mark);
  job.change = [request](uint64_t old) { return rdma::changed(request, old); };
  job.done = while_arriving(*qp_, std::move(done));
  home_->process->reach()->submit(std::move(job));
  return false;
}

rdma::WorkRequest exchange_of(rdma::WorkRequest atomic, uint64_t was, uint64_t becomes) {
  atomic.wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kCompareSwap);
  atomic.wqe.rdma.compare_add = was;
  atomic.wqe.rdma.swap = becomes;
  return atomic;
}

void Receiver::publish(const rdma::WorkRequest& request, const rdma::Plan& plan) {
  // Nobody but us could use the window, and we are not. The program may have unbound it, or have
  // destroyed it, since the request was checked.
  const bool invalidated = std::exchange(invalidated_, false);
  if (plan.opcode == verbs::Opcode::kSendWithInvalidate && !invalidated)
    if (rdma::Mw* const mw = rdma::invalidatable(*qp_, request.wqe.imm))
      rdma::unbind_window(*qp_->context, *mw);
  if (plan.receives) publish(request, plan, WcStatus::kSuccess);
}

void Receiver::tell() {
  if (!untold_) return;
  if (qp_->domain != nullptr)
    srq_->tell(*untold_);
  else
    qp_->tell(*untold_);
  untold_.reset();
}

void Receiver::publish(const rdma::WorkRequest& request, const rdma::Plan& plan, WcStatus status) {
  ipc::RecvEntry entry = rdma::receive_entry(request, plan, status);
  if (qp_->domain != nullptr) {
    entry.qpn = qp_->qpn;
    srq_->publish(entry);
  } else {
    qp_->publish(entry);
  }
  untold_ = entry;
  if (claimed_from_ != nullptr) claimed_from_->completed(receive_.slot);
  claimed_from_ = nullptr;
}

WcStatus Receiver::refuse(Outcome outcome, const rdma::WorkRequest& request,
                          const rdma::Plan& plan) {
  invalidated_ = false;
  if (outcome == Outcome::kReceiveTooSmall)
    publish(request, plan, WcStatus::kLocalLengthError);
  else if (outcome == Outcome::kReceiveProtection)
    publish(request, plan, WcStatus::kLocalProtectionError);
  else
    abandon();
  tell();
  if (outcome == Outcome::kRemoteAccess) qp_->raise(verbs::Event::kQpAccessError);
  if (outcome == Outcome::kRemoteInvalid) qp_->raise(verbs::Event::kQpRequestError);
  // A queue pair connected to itself goes to ERR when its request has been completed.
  if (qp_->link.out != qp_) qp_->fail();
  if (outcome == Outcome::kRemoteAccess) return WcStatus::kRemoteAccessError;
  if (outcome == Outcome::kReceiveProtection) return WcStatus::kRemoteOperationError;
  return WcStatus::kRemoteInvalidRequest;
}

namespace {

// Of one queue pair, on their way into memory that has to be reached; more are lost, as where the
// buffer of a network card is full.
constexpr uint32_t kMaxReceiving = 256;

}  // namespace

bool receive_message(rdma::Qp& target, const rdma::Buffer& message, ipc::RecvEntry entry,
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
  job.parts = move_in_place(pieces, process, true, message->data());
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
  const auto written = [context = target.context, handle = target.handle,
                        alive = std::weak_ptr(target.alive), receive, entry,
                        weak_srq = target.srq != nullptr
                                       ? target.srq->weak()
                                       : std::weak_ptr<rdma::Srq>()](bool ok) mutable {
    rdma::Qp* qp = alive.expired() ? nullptr : context->qps.find(handle);
    const auto srq = weak_srq.lock();
    const auto give_back = [&] {
      if (srq != nullptr) srq->give_back(receive.slot);
    };
    if (qp == nullptr) return give_back();
    --qp->receiving;
    if (!qp->can_receive()) {  // in an error state the program flushes its receives itself
      return give_back();
    }
    if (!ok) entry.status = static_cast<uint8_t>(WcStatus::kLocalProtectionError);
    qp->deliver(entry);
    if (srq != nullptr) srq->completed(receive.slot);
  };
  job.done = while_arriving(target, written);
  process.reach()->submit(std::move(job));
  return true;
}

}  // namespace vrdma::transport
