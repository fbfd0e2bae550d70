// What an attachment makes again when the process before it has died.
//
// Objects whose numbers only the device and the driver know are made again: the numbers that verbs
// give now are translated. A queue pair's number and a region's keys are known to peers, and the
// session that had them has ended. So these are lost, as with an adapter that reports a local
// catastrophic error: what was posted to a queue pair and has not ended is flushed, by the
// positions that the image has, and each completion comes once.
#include <algorithm>
#include <cerrno>

#include "pvrdma/function/attachment.h"
#include "pvrdma/function/refusals.h"

namespace vrdma::pvrdma {

namespace {

constexpr uint32_t kGsiKey = 0x80010000;  // IBTA: the Q_Key of queue pair 1

base::Result<void> no_such(const char* what, uint32_t handle) {
  return base::fail(EINVAL, std::string("the image of the device has a ") + what + " " +
                                std::to_string(handle) + " that cannot be");
}

}  // namespace

Attachment::Done Attachment::restore(uint64_t since) {
  events_.resume();
  told_.resume();
  if (Done done = restore_memory(since); !done) return done;
  if (Done done = restore_queues(since); !done) return done;
  event(IBV_EVENT_DEVICE_FATAL, 1);
  // The process before may have died between an entry and its interrupt, and nobody knows which
  // queues were armed.
  cqs_.each([this](Cq* cq) {
    cq->is_armed = true;
    if (cq->ring.standing().value_or(0) > 0) announce(cq);
  });
  interrupts_.raise(kCompletionVector);
  qps_.each([this](const Qp* qp) {
    look({Due::What::kReceives, qp->handle});
    look({Due::What::kSends, qp->handle});
  });
  return {};
}

Attachment::Done Attachment::restore_memory(uint64_t since) {
  Done done;
  const auto put = [&](bool fits, const char* what, uint32_t handle) {
    if (!fits && done) done = no_such(what, handle);
  };
  image_.each(image_.contexts, since, [&](uint32_t i, const ImagedContext& from) {
    auto one = std::make_unique<Context>();
    one->page = from.page;
    put(from.page != 0 && from.page < kDoorbellPages && contexts_.put_back(i, std::move(one)),
        "program", i);
  });
  image_.each(image_.gids, since, [&](uint32_t i, const ImagedGid& from) {
    gids_[i] = from.gid;
    has_gid_[i] = true;
  });
  image_.each(image_.pds, since, [&](uint32_t i, const ImagedPd& from) {
    if (!done) return;
    Owned<ibv_pd> made(::ibv_alloc_pd(adapter_.context()));
    if (made == nullptr)
      done = base::fail_errno("allocate a protection domain");
    else
      put(pds_.put_back(i, std::make_unique<Pd>(from.context, std::move(made))),
          "protection domain", i);
  });
  image_.each(image_.mrs, since, [&](uint32_t i, const ImagedMr& from) {
    if (!done) return;
    auto one = std::make_unique<Mr>();
    if (from.is_of_all_memory) {
      const Pd* const pd = pds_.find(from.pd);
      if (pd == nullptr || pd->context != 0) {
        done = no_such("memory region", i);
        return;
      }
      done = make_region_of_all(*pd, one.get());
      if (!done) return;
      one->lost_key = from.lkey;
      keys_[from.lkey] = one->verbs->lkey;
    }
    put(mrs_.put_back(i, std::move(one)), "memory region", i);
  });
  return done;
}

Attachment::Done Attachment::restore_queues(uint64_t since) {
  Done done;
  cqs_.go_on_after(image_.last_made(image_.cqs, since));
  srqs_.go_on_after(image_.last_made(image_.srqs, since));
  qps_.go_on_after(image_.last_made(image_.qps, since));
  image_.each(image_.cqs, since, [&](uint32_t i, const ImagedCq& from) {
    if (!done) return;
    auto one = std::make_unique<Cq>();
    const CreateCq wish = from.wish;
    if (wish.pages == 0 || !fits(wish.cqe, sizeof(CompletionEntry), wish.pages - 1)) {
      done = no_such("completion queue", i);
      return;
    }
    done = make_cq(wish, one.get());
    if (!done) return;
    one->ring.resume();
    settle_pushed(*one, i, from.pushed);
    if (!cqs_.put_back(i, std::move(one))) done = no_such("completion queue", i);
  });
  image_.each(image_.srqs, since, [&](uint32_t i, const ImagedSrq& from) {
    auto one = std::make_unique<Srq>();
    one->context = from.context;
    if (!srqs_.put_back(i, std::move(one)) && done) done = no_such("shared receive queue", i);
  });
  image_.each(image_.qps, since, [&](uint32_t i, const ImagedQp& from) {
    if (!done) return;
    auto one = std::make_unique<Qp>();
    done = restore_qp(from, one.get());
    if (!done) return;
    Qp* const qp = one.get();
    if (!qps_.put_back(i, std::move(one)))
      done = no_such("queue pair", i);
    else if (!qp->is_lost())
      by_number_[qp->verbs->qp_num] = qp;
  });
  return done;
}

// The last completion that was pushed into this queue has ended its request, whether or not the
// process before has come to note it.
void Attachment::settle_pushed(const Cq& cq, uint32_t handle, uint64_t word) {
  const auto pushed = Pushed::of(word);
  if (!pushed || pushed->producer != cq.ring.position() || pushed->qp >= kMostQps) return;
  ImagedQp& qp = image_.qps.all[pushed->qp];
  if ((pushed->is_receive ? qp.wish.recv_cq : qp.wish.send_cq) != handle) return;  // of one before
  (pushed->is_receive ? qp.receives_ended : qp.sends_ended) = pushed->position;
}

// The positions of this queue pair begin anew.
void Attachment::forget_pushed(const Qp& qp) {
  image_.cqs.all[qp.send_cq->handle].pushed = 0;
  image_.cqs.all[qp.recv_cq->handle].pushed = 0;
}

Attachment::Done Attachment::restore_qp(const ImagedQp& from, Qp* qp) {
  const CreateQp wish = from.wish;
  qp->pd = pds_.find(wish.pd);
  qp->send_cq = cqs_.find(wish.send_cq);
  qp->recv_cq = cqs_.find(wish.recv_cq);
  if (qp->pd == nullptr || qp->send_cq == nullptr || qp->recv_cq == nullptr)
    return base::fail(EINVAL, "the image of the device has a queue pair without its queues");
  qp->context = qp->pd->context;
  qp->type = static_cast<ibv_qp_type>(wish.qp_type);
  if (Done done = make_queues(wish, qp); !done) return done;
  qp->first_send = from.sends_ended;
  qp->first_receive = from.receives_ended;
  qp->sends.resume(qp->first_send);
  qp->first_send = qp->sends.position();
  if (qp->receives.valid()) {
    qp->receives.resume(qp->first_receive);
    qp->first_receive = qp->receives.position();
  }
  qp->state = IBV_QPS_ERR;
  return qp->type == kGsiType && qp->context == 0 ? restore_gsi(from, qp) : Done{};
}

// Its number is 1 again. What was posted and has not ended is posted again: a datagram may be sent
// twice.
Attachment::Done Attachment::restore_gsi(const ImagedQp& from, Qp* qp) {
  if (Done done = make_verbs(from.wish, nullptr, qp); !done) return done;
  const uint32_t state = from.changed <= image_.progress.noted ? from.after : from.before;
  qp->state = static_cast<ibv_qp_state>(state);
  const auto change = [&](ibv_qp_state to, int mask) {
    ibv_qp_attr attr{};
    attr.qp_state = to;
    attr.qkey = kGsiKey;
    attr.port_num = 1;
    return ::ibv_modify_qp(qp->verbs.get(), &attr, IBV_QP_STATE | mask);
  };
  int error = 0;
  if (state >= IBV_QPS_INIT && state <= IBV_QPS_RTS)
    error = change(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (error == 0 && (state == IBV_QPS_RTR || state == IBV_QPS_RTS)) error = change(IBV_QPS_RTR, 0);
  if (error == 0 && state == IBV_QPS_RTS) error = change(IBV_QPS_RTS, IBV_QP_SQ_PSN);
  if (state > IBV_QPS_RTS) {
    error = change(IBV_QPS_ERR, 0);
    qp->state = IBV_QPS_ERR;
  }
  if (error != 0) return base::fail_errno("bring queue pair 1 to its state", error);
  return {};
}

}  // namespace vrdma::pvrdma
