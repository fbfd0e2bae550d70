// Posting work requests.
//
// If this process executes the queue (direct link, token held, nothing waiting), the request is
// done before ibv_post_send returns. Otherwise it is written to the ring for the worker.
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"
#include "core/base/asymmetric_fence.h"

namespace vrdma::client {

namespace {

using verbs::Opcode;

// The opcode in core/verbs.
Opcode opcode_of(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_WRITE ? Opcode::kAtomicWrite : static_cast<Opcode>(opcode);
}

bool opcode_fits(const Qp& qp, ibv_wr_opcode opcode) {
  const bool keys =
      opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_SEND_WITH_INV;
  if (qp.ibv.qp_base.qp_type == kGsiQp) return opcode == IBV_WR_SEND;
  switch (qp.ibv.qp_base.qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
      return opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD || keys || opcode == IBV_WR_ATOMIC_WRITE;
    case IBV_QPT_UC:
      return opcode <= IBV_WR_SEND_WITH_IMM || keys;
    case IBV_QPT_UD:
      return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
    case IBV_QPT_RAW_PACKET:
      return opcode == IBV_WR_SEND;
    default:
      return false;
  }
}

// Translates a bind or an invalidation, which have no payload.
int translate_local(const Qp& qp, const ibv_send_wr& wr, ipc::SendWqe* wqe) {
  wqe->num_sge = 0;
  wqe->imm = 0;
  if (wr.opcode == IBV_WR_LOCAL_INV) {
    wqe->imm = wr.invalidate_rkey;
    return 0;
  }
  const ibv_mw_bind_info& info = wr.bind_mw.bind_info;
  if (wr.bind_mw.mw == nullptr || wr.bind_mw.mw->context != qp.ibv.qp_base.context) return EINVAL;
  if (info.mr == nullptr ? info.addr != 0 || info.length != 0
                         : info.mr->context != qp.ibv.qp_base.context)
    return EINVAL;
  wqe->bind = {info.addr,
               info.length,
               info.mr != nullptr ? info.mr->handle : ipc::kNoObject,
               info.mw_access_flags,
               wr.bind_mw.mw->handle,
               wr.bind_mw.rkey};
  return 0;
}

// Translates `wr` and copies the inline payload. 0 or an errno.
int translate(const Qp& qp, const ibv_send_wr& wr, rdma::WorkRequest* out) {
  if (!opcode_fits(qp, wr.opcode)) return EINVAL;
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > qp.cap.max_send_sge) return EINVAL;
  ipc::SendWqe& wqe = out->wqe;
  wqe.wr_id = wr.wr_id;
  const Opcode opcode = opcode_of(wr.opcode);
  wqe.opcode = static_cast<uint8_t>(opcode);
  wqe.flags = 0;
  wqe.num_sge = static_cast<uint16_t>(wr.num_sge);
  wqe.inline_length = 0;
  wqe.srqn = qp.ibv.qp_base.qp_type == IBV_QPT_XRC_SEND ? wr.qp_type.xrc.remote_srqn : 0;
  if (qp.sq_sig_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0) wqe.flags |= ipc::kSignaled;
  if ((wr.send_flags & IBV_SEND_SOLICITED) != 0) wqe.flags |= ipc::kSolicited;
  if ((wr.send_flags & IBV_SEND_FENCE) != 0) wqe.flags |= ipc::kFence;
  if (verbs::is_local(opcode)) return translate_local(qp, wr, &wqe);
  wqe.imm = verbs::has_immediate(opcode)            ? wr.imm_data
            : opcode == Opcode::kSendWithInvalidate ? wr.invalidate_rkey
                                                    : 0;
  if (opcode == Opcode::kAtomicWrite) {  // the payload is copied at once, like inline data
    uint64_t value = 0;
    if (wr.num_sge != 1 || wr.sg_list[0].length != sizeof value) return EINVAL;
    std::memcpy(&value, reinterpret_cast<const void*>(wr.sg_list[0].addr), sizeof value);
    wqe.num_sge = 0;
    wqe.rdma = {wr.wr.rdma.remote_addr, value, 0, wr.wr.rdma.rkey};
    return 0;
  }
  if (qp.ibv.qp_base.qp_type == IBV_QPT_UD || qp.ibv.qp_base.qp_type == kGsiQp) {
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    const ibv_ah_attr& attr = Ah::of(wr.wr.ud.ah)->attr;
    std::memcpy(wqe.ud.dgid, attr.grh.dgid.raw, sizeof wqe.ud.dgid);
    wqe.ud.qpn = wr.wr.ud.remote_qpn;
    wqe.ud.qkey = wr.wr.ud.remote_qkey;
    wqe.ud.flow_label = attr.grh.flow_label;
    wqe.ud.sgid_index = attr.grh.sgid_index;
    wqe.ud.traffic_class = attr.grh.traffic_class;
    wqe.ud.hop_limit = attr.grh.hop_limit;
    wqe.ud.sl = attr.sl;
  } else if (verbs::is_atomic(opcode)) {
    wqe.rdma = {wr.wr.atomic.remote_addr, wr.wr.atomic.compare_add, wr.wr.atomic.swap,
                wr.wr.atomic.rkey};
  } else {
    wqe.rdma = {wr.wr.rdma.remote_addr, 0, 0, wr.wr.rdma.rkey};
  }
  if ((wr.send_flags & IBV_SEND_INLINE) == 0) {
    for (int i = 0; i < wr.num_sge; ++i)
      out->sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
    return 0;
  }
  if (opcode == Opcode::kRdmaRead || verbs::is_atomic(opcode)) return EINVAL;
  wqe.flags |= ipc::kInline;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length > qp.cap.max_inline_data - wqe.inline_length) return ENOMEM;
    if (sge.length == 0) continue;  // its address may be null
    std::memcpy(out->inline_data + wqe.inline_length, reinterpret_cast<const void*>(sge.addr),
                sge.length);
    wqe.inline_length += sge.length;
  }
  return 0;
}

void write_ring(Qp& qp, const rdma::WorkRequest& request) {
  uint8_t* to = qp.sq + uint64_t{qp.sq_head & (qp.sq_depth - 1)} * qp.send_stride;
  std::memcpy(to, &request.wqe, sizeof request.wqe);
  const size_t length = (request.wqe.flags & ipc::kInline) != 0
                            ? request.wqe.inline_length
                            : request.wqe.num_sge * sizeof(verbs::Sge);
  std::memcpy(to + sizeof request.wqe, request.inline_data, length);
}

// When this returns, the worker or this process executes the published requests.
void publish(Qp& qp) {
  if (qp.owns_token) {
    pump(qp);
    return;
  }
  // Pairs with SendRing::let_go: either it sees the work, or this thread sees that the token is
  // free.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t free = static_cast<uint32_t>(ipc::Token::kFree);
  if (qp.block->token.load(std::memory_order_relaxed) != free) return;
  if (qp.block->token.compare_exchange_strong(
          free, ipc::token_word(ipc::Token::kWorker, qp.context->session.epoch())))
    qp.context->ring(qp.slot);
}

}  // namespace

void free_unsignaled(Qp& qp) {
  const std::lock_guard lock(qp.poll_mutex);
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  uint32_t polled = qp.polled.load(std::memory_order_relaxed);
  for (; polled != tail; ++polled) {
    const uint32_t slot = polled & (qp.sq_depth - 1);
    if (qp.posted[slot].signaled || qp.results[slot].status != IBV_WC_SUCCESS) break;
    if (verbs::is_local(static_cast<Opcode>(qp.posted[slot].opcode)))
      qp.keys_ended.store(true, std::memory_order_relaxed);
  }
  qp.polled.store(polled, std::memory_order_release);
}

int check_sends(Qp& qp, const ibv_send_wr* wr) {
  const std::lock_guard lock(qp.send_mutex);
  if (qp.state() < verbs::QpState::kRts) return EINVAL;
  free_unsignaled(qp);
  uint32_t room = room_of(qp);
  rdma::WorkRequest request;
  for (; wr != nullptr; wr = wr->next) {
    if (room-- == 0) return ENOMEM;
    if (const int error = translate(qp, *wr, &request); error != 0) return error;
  }
  return 0;
}

namespace {

int refuse(ibv_send_wr* first, ibv_send_wr** bad_wr, int error) {
  *bad_wr = first;
  return errno = error;
}
int refuse(ibv_recv_wr* first, ibv_recv_wr** bad_wr, int error) {
  *bad_wr = first;
  return errno = error;
}

// Waits for the daemon's answer to the change to ERR. Takes no lock, because a polling thread may
// need it.
void await_failure(Qp& qp) {
  ipc::Request request;
  ipc::Reply reply;
  request.call = ipc::Call::kQueryQp;
  request.handle.handle = qp.ibv.qp_base.handle;
  const int error = qp.context->session.call(request, &reply);
  auto failing = Qp::Own::kFailing;
  qp.own.compare_exchange_strong(failing, error == EIO ? Qp::Own::kFailed : Qp::Own::kNothing);
}

// Posts requests of any kind in any state; under send_mutex.
[[gnu::noinline]] int post_sends(Qp& qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  const verbs::QpState state = qp.state();
  int error = state < verbs::QpState::kRts ? EINVAL : 0;
  const bool runs = state == verbs::QpState::kRts;
  bool queued = false;
  rdma::WorkRequest request;
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    error = room_of(qp) > 0 ? translate(qp, *wr, &request) : ENOMEM;
    if (error != 0) break;
    const uint32_t slot = qp.sq_head & (qp.sq_depth - 1);
    qp.posted[slot] = {wr->wr_id, request.wqe.opcode, (request.wqe.flags & ipc::kSignaled) != 0};
    if (runs && !queued && take_token(qp) && execute(qp, request)) continue;
    write_ring(qp, request);
    ++qp.sq_head;
    qp.block->sq_head.store(qp.sq_head, std::memory_order_release);
    queued = true;
  }
  if (queued && (runs || state == verbs::QpState::kSqd)) publish(qp);
  // In an error state the next poll flushes, so sleeping threads must be notified. Who brought the
  // queue pair there meanwhile may have seen an empty queue.
  if (queued && qp.state() >= verbs::QpState::kSqe && qp.may_flush())
    qp.send_cq()->notify(qp, true);
  return error != 0 ? refuse(wr, bad_wr, error) : 0;
}

}  // namespace

int post_send(ibv_qp* ibv, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp& qp = *Qp::of(ibv);
  {
    const std::lock_guard lock(qp.send_mutex);
    ibv_send_wr* const rest = execute_plainly(qp, wr);
    if (rest == nullptr && wr != nullptr) return 0;
    wr = rest;
    if (qp.own.load(std::memory_order_relaxed) != Qp::Own::kFailing)
      return post_sends(qp, wr, bad_wr);
  }
  await_failure(qp);
  const std::lock_guard lock(qp.send_mutex);
  return post_sends(qp, wr, bad_wr);
}

namespace {

// Writes one receive into `to`. False: more than max_sge elements.
bool write_receive(const ibv_recv_wr& wr, uint32_t max_sge, uint8_t* to) {
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > max_sge) return false;
  const ipc::RecvWqe header{wr.wr_id, static_cast<uint32_t>(wr.num_sge), 0};
  std::memcpy(to, &header, sizeof header);
  for (int i = 0; i < wr.num_sge; ++i) {
    const verbs::Sge sge{wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
    std::memcpy(to + sizeof header + static_cast<size_t>(i) * sizeof sge, &sge, sizeof sge);
  }
  return true;
}

}  // namespace

int post_recv(ibv_qp* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp& qp = *Qp::of(ibv);
  const std::lock_guard lock(qp.recv_mutex);
  const verbs::QpState state = qp.state();
  int error = state == verbs::QpState::kReset || ibv->srq != nullptr ? EINVAL : 0;
  for (; error == 0 && wr != nullptr; wr = wr->next) {
    if (qp.rq_head - qp.rq_polled.load(std::memory_order_acquire) >= qp.cap.max_recv_wr) {
      error = ENOMEM;
      break;
    }
    const uint32_t slot = qp.rq_head & (qp.rq_depth - 1);
    if (!write_receive(*wr, qp.cap.max_recv_sge,
                       qp.rq + uint64_t{slot} * ipc::recv_stride(qp.cap.max_recv_sge))) {
      error = EINVAL;
      break;
    }
    qp.recv_wr_ids[slot] = wr->wr_id;
    ++qp.rq_head;
  }
  qp.block->rq_head.store(qp.rq_head, std::memory_order_release);
  // Pairs with Waiting::for_receive: either it sees the receive, or this thread sees that it
  // waits.
  base::AsymmetricFence::light(qp.context->cheap_fence);
  if (qp.block->rq_waiter.load(std::memory_order_relaxed) != 0) qp.context->ring(qp.slot);
  if (qp.state() == verbs::QpState::kErr && qp.may_flush()) qp.recv_cq()->notify(qp, true);
  return error != 0 ? refuse(wr, bad_wr, error) : 0;
}

int post_srq_recv(ibv_srq* ibv, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Srq& srq = *Srq::of(ibv);
  Context& context = *Context::of(ibv->context);
  const std::lock_guard lock(srq.mutex);
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (srq.depth - srq.free.size() >= srq.max_wr) {
      error = ENOMEM;
      break;
    }
    const uint32_t slot = srq.free.back();
    if (!write_receive(*wr, srq.max_sge,
                       srq.wqes + uint64_t{slot} * ipc::recv_stride(srq.max_sge))) {
      error = EINVAL;
      break;
    }
    srq.free.pop_back();
    srq.wr_ids[slot] = wr->wr_id;
    srq.in_use[slot] = true;
    __atomic_store_n(&srq.posted[srq.head & (srq.depth - 1)], slot, __ATOMIC_RELAXED);
    ++srq.head;
    // From here on a peer may claim it, through an older entry for the same slot.
    const uint32_t number = srq.head % ipc::kReturned;
    srq.claims->words()[slot].store(std::max(number, 1u), std::memory_order_release);
  }
  srq.block->head.store(srq.head, std::memory_order_release);
  base::AsymmetricFence::light(context.cheap_fence);
  if (srq.block->waiter.load(std::memory_order_relaxed) != 0) context.ring();
  return error != 0 ? refuse(wr, bad_wr, error) : 0;
}

void Context::ring() { ::eventfd_write(doorbell.get(), 1); }

void Context::ring(uint32_t slot) {
  auto* kicks = reinterpret_cast<std::atomic<uint64_t>*>(arena.bytes() + ipc::kKickOffset);
  kicks[slot / 64].fetch_or(1ull << (slot % 64), std::memory_order_release);
  ring();
}

}  // namespace vrdma::client
