// Shared receive queues.
#include <cerrno>

#include "client/device/objects.h"
#include "client/verbs/events.h"
#include "client/verbs/virtual.h"

namespace vrdma::client {

ibv_srq* create_srq_ex(ibv_context* ibv, ibv_srq_init_attr_ex* attr) {
  const auto has = [&](ibv_srq_init_attr_mask bit) { return (attr->comp_mask & bit) != 0; };
  const ibv_srq_type type = has(IBV_SRQ_INIT_ATTR_TYPE) ? attr->srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  const bool xrc = type == IBV_SRQT_XRC;
  if (!has(IBV_SRQ_INIT_ATTR_PD) || attr->pd == nullptr ||
      (xrc && (!has(IBV_SRQ_INIT_ATTR_XRCD) || attr->xrcd == nullptr ||
               !has(IBV_SRQ_INIT_ATTR_CQ) || attr->cq == nullptr))) {
    errno = EINVAL;
    return nullptr;
  }
  Context& context = *Context::of(ibv);
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kCreateSrq;
  request.create_srq = {attr->pd->handle, attr->attr.max_wr, attr->attr.max_sge,
                        xrc ? Xrcd::of(attr->xrcd)->handle : ipc::kNoObject,
                        xrc ? Cq::of(attr->cq)->handle : ipc::kNoObject};
  const std::lock_guard creating(context.numbers_mutex);
  if (const int error = context.session.call(request, &reply); error != 0) {
    errno = error;
    return nullptr;
  }
  const ipc::CreateSrqReply& made = reply.create_srq;
  Made theirs(context.session, ipc::Call::kDestroySrq, made.handle);
  auto srq = std::make_unique<Srq>();
  srq->pd = Use(&Pd::of(attr->pd)->users);
  srq->context = Within(ibv);
  srq->handle = made.handle;
  srq->max_wr = made.max_wr;
  srq->max_sge = made.max_sge;
  srq->depth = made.depth;
  srq->block = context.arena.at<ipc::SrqBlock>(made.block);
  srq->posted = context.arena.at<uint32_t>(made.block + sizeof(ipc::SrqBlock));
  srq->wqes = context.arena.at<uint8_t>(made.block + ipc::srq_wqes_at(made.depth));
  srq->claims = context.bells.at<ipc::SrqClaims>(made.claims);
  srq->wr_ids.resize(made.depth);
  srq->in_use.resize(made.depth);
  for (uint32_t slot = made.depth; slot-- > 0;) srq->free.push_back(slot);
  init_srq(&srq->ibv, ibv, attr->pd, attr->srq_context);
  srq->ibv.handle = made.handle;
  attr->attr.max_wr = made.max_wr;
  attr->attr.max_sge = made.max_sge;
  if (xrc) {
    srq->srqn = made.srqn;
    srq->cq = Cq::of(attr->cq);
    srq->inbox = {context.arena.at<ipc::RecvRing>(made.inbox), made.depth};
    const std::lock_guard lock(srq->cq->mutex);
    srq->cq->shared.reserve(srq->cq->shared.size() + 1);
  }
  {
    const std::lock_guard lock(context.mutex);
    context.srqs.emplace(made.handle, srq.get());
  }
  theirs.keep();
  if (xrc) {
    const std::lock_guard lock(srq->cq->mutex);
    srq->cq->shared.push_back(srq.get());
  }
  return &srq.release()->ibv;
}

bool Srq::take(uint32_t slot, uint64_t* wr_id) {
  const std::lock_guard lock(mutex);
  if (slot >= depth || !in_use[slot]) return false;
  *wr_id = wr_ids[slot];
  in_use[slot] = false;
  free.push_back(slot);
  return true;
}

int modify_srq(ibv_srq* ibv, ibv_srq_attr* attr, int attr_mask) {
  if ((attr_mask & ~(IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR)) != 0) return EINVAL;
  Srq& srq = *Srq::of(ibv);
  const std::lock_guard lock(srq.mutex);
  const bool resizes = (attr_mask & IBV_SRQ_MAX_WR) != 0;
  if (resizes && attr->max_wr < srq.depth - srq.free.size()) return EINVAL;
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kModifySrq;
  request.modify_srq = {ibv->handle, static_cast<uint32_t>(attr_mask), attr->max_wr,
                        attr->srq_limit};
  const int error = Context::of(ibv->context)->session.call(request, &reply);
  if (error == 0 && resizes) srq.max_wr = attr->max_wr;
  return error;
}

int query_srq(ibv_srq* ibv, ibv_srq_attr* attr) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kQuerySrq;
  request.handle.handle = ibv->handle;
  if (const int error = Context::of(ibv->context)->session.call(request, &reply); error != 0)
    return error;
  attr->max_wr = reply.query_srq.max_wr;
  attr->max_sge = reply.query_srq.max_sge;
  attr->srq_limit = reply.query_srq.limit;
  return 0;
}

int get_srq_num(ibv_srq* ibv, uint32_t* srq_num) {
  if (Srq::of(ibv)->cq == nullptr) return EINVAL;
  *srq_num = Srq::of(ibv)->srqn;
  return 0;
}

int destroy_srq(ibv_srq* ibv) {
  Context& context = *Context::of(ibv->context);
  Srq* srq = Srq::of(ibv);
  if (srq->users.load() != 0) return EBUSY;
  // Before the daemon withdraws its inbox, which other threads may be polling.
  if (srq->cq != nullptr) {
    const std::lock_guard lock(srq->cq->mutex);
    std::erase(srq->cq->shared, srq);
  }
  std::unique_lock destroying(context.numbers_mutex);
  const int error = context.session.call(ipc::Call::kDestroySrq, ibv->handle);
  if (error != 0 && error != EIO) {
    if (srq->cq != nullptr) {
      const std::lock_guard lock(srq->cq->mutex);
      srq->cq->shared.push_back(srq);
    }
    return error;
  }
  {
    const std::lock_guard lock(context.mutex);
    context.srqs.erase(ibv->handle);
  }
  drop_events_of_srq(context, ibv->handle);
  destroying.unlock();
  finish_srq(ibv, srq->events_given.load());
  delete srq;
  return 0;
}

}  // namespace vrdma::client
