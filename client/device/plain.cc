// The short way of the requests that programs post millions of times a second.
//
// A SEND or an RDMA WRITE of one element, whose memory at both ends is in place, to a receive queue
// of the peer's own: what prepare(), perform() and deliver() of the executor do for every request,
// in one go and from the program's work request, with the regions that were named last at hand.
// Whatever is not exactly so leaves no trace here and takes the executor's way, which also says
// what is wrong with it.
#include <cstddef>
#include <cstring>

#include "client/device/direct.h"

namespace vrdma::client {

namespace {

bool is_at_hand(const rdma::Region& region, const rdma::Memory& memory) {
  return region.way == ipc::Way::kInPlace ||
         (region.way == ipc::Way::kReached && memory.space->is_own());
}

// Where `length` bytes at `addr` of the region `key` are, if it is in place and `user` has
// `access`.
uint8_t* find(rdma::KnownRegion& known, const rdma::Memory& memory, uint32_t key,
              const rdma::KeyUser& user, uint32_t access, uint64_t addr, uint64_t length) {
  const rdma::Region* region = known.find(memory.keys, key);
  uint64_t va = 0, run = 0;
  if (region == nullptr || !region->admits(user, access) || !is_at_hand(*region, memory) ||
      !region->locate(addr, length, &va))
    return nullptr;
  uint8_t* const at = memory.space->at(va, length, &run);
  return run == length ? at : nullptr;
}

// The memory of the receive that a SEND of `length` bytes would take.
uint8_t* next_receive(Direct& direct, uint32_t index, uint64_t length) {
  rdma::ReceiveQueue& queue = direct.responder.receives;
  if (!rdma::is_known(queue, index)) return nullptr;
  const uint8_t* const wqe = rdma::receive_at(queue, index);
  const auto elements = __atomic_load_n(
      reinterpret_cast<const uint32_t*>(wqe + offsetof(ipc::RecvWqe, num_sge)), __ATOMIC_RELAXED);
  if (elements != 1) return nullptr;
  verbs::Sge sge;
  std::memcpy(&sge, wqe + sizeof(ipc::RecvWqe), sizeof sge);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (sge.length < length) return nullptr;
  return find(direct.known_receive, direct.responder.memory, sge.lkey,
              {direct.responder.receive_pd}, verbs::kLocalWrite, sge.addr, length);
}

bool carry_out(Qp& qp, const ibv_send_wr& wr) {
  Direct& direct = *qp.direct;
  const ibv_sge& sge = wr.sg_list[0];
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  if (is_inline && sge.length > qp.cap.max_inline_data) return false;
  // Not always what the element says: a region may have an iova of its own.
  const uint8_t* const from = is_inline ? reinterpret_cast<const uint8_t*>(sge.addr)
                                        : find(qp.known, qp.context->memory(), sge.lkey,
                                               {qp.pd_handle}, 0, sge.addr, sge.length);
  if (from == nullptr) return false;
  const uint32_t access = direct.block->access.load(std::memory_order_relaxed);
  if (wr.opcode == IBV_WR_RDMA_WRITE) {
    if ((access & verbs::kRemoteWrite) == 0) return false;
    uint8_t* const to = find(direct.known_remote, direct.responder.memory, wr.wr.rdma.rkey,
                             {direct.responder.pd, direct.responder.qpn}, verbs::kRemoteWrite,
                             wr.wr.rdma.remote_addr, sge.length);
    if (to == nullptr) return false;
    rdma::copy_ordered(to, from, sge.length);
    return true;
  }
  const uint32_t index = direct.outbox->head.load(std::memory_order_relaxed);
  uint8_t* const to = next_receive(direct, index, sge.length);
  if (to == nullptr) return false;
  rdma::copy_ordered(to, from, sge.length);
  ++qp.receives_consumed;
  ipc::RecvEntry entry{};
  entry.slot = index & (direct.responder.receives.depth - 1);
  entry.byte_len = sge.length;
  entry.opcode = static_cast<uint8_t>(verbs::Opcode::kSend);
  entry.status = static_cast<uint8_t>(verbs::WcStatus::kSuccess);
  const bool solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  entry.flags = solicited ? ipc::kRecvSolicited : 0;
  ipc::publish(direct.outbox, direct.outbox_depth, index, entry);
  fetch_ahead(direct, index + 1);
  return true;
}

}  // namespace

bool execute_plainly(Qp& qp, const ibv_send_wr& wr) {
  if ((wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_RDMA_WRITE) || wr.num_sge != 1 ||
      wr.sg_list[0].length == 0 || wr.sg_list[0].length > verbs::kMaxMessage || !qp.owns_token ||
      !ring_is_empty(qp) || qp.direct == nullptr)
    return false;
  const ibv_qp_type type = qp.ibv.qp_base.qp_type;
  if (type != IBV_QPT_RC && type != IBV_QPT_UC) return false;
  const bool sends = wr.opcode == IBV_WR_SEND;
  if (sends && qp.direct->shared.block != nullptr) return false;
  {
    const Busy busy(qp.block->busy, qp.context->cheap_fence);
    if (!link_is_direct(qp) || qp.state() != verbs::QpState::kRts || !carry_out(qp, wr))
      return false;
  }
  if (sends) tell_receiver(*qp.direct, (wr.send_flags & IBV_SEND_SOLICITED) != 0);
  const bool signaled = qp.sq_sig_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  qp.posted[qp.sq_head & (qp.sq_depth - 1)] = {
      wr.wr_id, static_cast<uint8_t>(sends ? verbs::Opcode::kSend : verbs::Opcode::kRdmaWrite),
      signaled};
  count_direct(qp, wr.sg_list[0].length);
  publish_result(qp, 0, signaled);
  ++qp.sq_head;
  qp.block->sq_head.store(qp.sq_head, std::memory_order_relaxed);
  return true;
}

}  // namespace vrdma::client
