// Commands about completion queues and shared receive queues.
#include <algorithm>
#include <cerrno>

#include "pvrdma/function/attachment.h"
#include "pvrdma/function/refusals.h"

namespace vrdma::pvrdma {

// --- completion queues ---

Attachment::Done Attachment::create_cq(const CreateCq& wish, CqAnswer* answer) {
  if (!has_context(wish.context)) return unknown("open device", wish.context);
  if (wish.pages == 0 || !fits(wish.cqe, sizeof(CompletionEntry), wish.pages - 1))
    return base::fail(EINVAL, "a completion queue of " + std::to_string(wish.cqe) + " entries in " +
                                  std::to_string(wish.pages) + " pages");
  if (cqs_.is_full()) return too_many("completion queues");
  auto cq = std::make_unique<Cq>();
  if (Done done = make_cq(wish, cq.get()); !done) return done;
  *answer = {0, wish.cqe};
  answer->handle = cqs_.add(std::move(cq))->handle;
  ImagedCq& made = image_.make(image_.cqs, answer->handle);
  made.wish = wish;
  made.pushed = 0;
  return {};
}

Attachment::Done Attachment::make_cq(const CreateCq& wish, Cq* cq) {
  auto pages = show_ring(wish.directory, wish.pages);
  if (!pages) return base::pass(std::move(pages.error()));
  cq->context = wish.context;
  cq->pages = std::move(*pages);
  cq->ring = {second_pair(cq->pages.bytes()), cq->pages.bytes() + kPageSize, wish.cqe};
  cq->verbs.reset(
      ::ibv_create_cq(adapter_.context(), static_cast<int>(wish.cqe), cq, adapter_.channel(), 0));
  if (cq->verbs == nullptr) return base::fail_errno("create a completion queue");
  if (const int error = ::ibv_req_notify_cq(cq->verbs.get(), 0); error != 0)
    return base::fail_errno("arm a completion queue", error);
  return {};
}

Attachment::Done Attachment::destroy_cq(uint32_t handle) {
  const Cq* const cq = cqs_.find(handle);
  const Qp* const by =
      qps_.find_if([cq](const Qp& one) { return one.send_cq == cq || one.recv_cq == cq; });
  if (Done done = unless_used("completion queue", handle, by); !done) return done;
  Done done = destroy(&cqs_, handle, "completion queue");
  if (!done) return done;
  forget({Due::What::kCompletions, Due::What::kReminder}, handle);
  image_.end(image_.cqs, handle);
  return done;
}

// --- shared receive queues ---

Attachment::Done Attachment::create_srq(const CreateSrq& wish, Handle* answer) {
  const Pd* const pd = pds_.find(wish.pd);
  if (pd == nullptr) return unknown("protection domain", wish.pd);
  const SrqAttributes& wanted = wish.attributes;
  if (wish.type != 0) return base::fail(EOPNOTSUPP, "only basic shared receive queues are offered");
  if (wanted.max_sge > kMostSges) return base::fail(EINVAL, "too many elements");
  const uint64_t stride = receive_stride(wanted.max_sge);
  if (wish.pages == 0 || !fits(wanted.max_wr, stride, wish.pages - 1))
    return base::fail(EINVAL, "a shared receive queue of " + std::to_string(wanted.max_wr) +
                                  " entries in " + std::to_string(wish.pages) + " pages");
  if (srqs_.is_full()) return too_many("shared receive queues");
  auto pages = show_ring(wish.directory, wish.pages);
  if (!pages) return base::pass(std::move(pages.error()));
  auto srq = std::make_unique<Srq>();
  srq->context = pd->context;
  srq->max_sge = wanted.max_sge;
  srq->pages = std::move(*pages);
  srq->ring = {second_pair(srq->pages.bytes()), srq->pages.bytes() + kPageSize, wanted.max_wr,
               static_cast<uint32_t>(stride)};
  ibv_srq_init_attr init{};
  init.srq_context = srq.get();
  init.attr = {wanted.max_wr, std::max(wanted.max_sge, 1u), 0};
  srq->verbs.reset(::ibv_create_srq(pd->verbs.get(), &init));
  if (srq->verbs == nullptr) return base::fail_errno("create a shared receive queue");
  answer->handle = srqs_.add(std::move(srq))->handle;
  image_.make(image_.srqs, answer->handle).context = pd->context;
  return {};
}

Attachment::Done Attachment::modify_srq(const ModifySrq& wish) {
  const Srq* const srq = srqs_.find(wish.handle);
  if (srq == nullptr) return unknown("shared receive queue", wish.handle);
  if (srq->is_lost()) return lost("shared receive queue", wish.handle);
  if (wish.mask != IBV_SRQ_LIMIT)
    return base::fail(EINVAL, "of a shared receive queue only the limit changes");
  ibv_srq_attr attr{};
  attr.srq_limit = wish.attributes.limit;
  if (const int error = ::ibv_modify_srq(srq->verbs.get(), &attr, IBV_SRQ_LIMIT); error != 0)
    return base::fail_errno("modify a shared receive queue", error);
  return {};
}

Attachment::Done Attachment::query_srq(uint32_t handle, SrqAttributes* answer) {
  const Srq* const srq = srqs_.find(handle);
  if (srq == nullptr) return unknown("shared receive queue", handle);
  if (srq->is_lost()) return lost("shared receive queue", handle);
  ibv_srq_attr attr{};
  if (const int error = ::ibv_query_srq(srq->verbs.get(), &attr); error != 0)
    return base::fail_errno("query a shared receive queue", error);
  *answer = {attr.max_wr, attr.max_sge, attr.srq_limit, 0};
  return {};
}

Attachment::Done Attachment::destroy_srq(uint32_t handle) {
  Done done = destroy(&srqs_, handle, "shared receive queue");
  if (!done) return done;
  forget({Due::What::kShared}, handle);
  image_.end(image_.srqs, handle);
  return done;
}

}  // namespace vrdma::pvrdma
