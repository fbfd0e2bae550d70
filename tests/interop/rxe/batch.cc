#include "tests/interop/rxe/batch.h"

#include <unistd.h>

namespace exchange {

namespace {

ibv_wc_opcode sent_as(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    default:
      return IBV_WC_SEND;
  }
}

void check_received(const ibv_wc& wc, const Step& step, const Qp& qp, bool is_datagram) {
  const bool is_send = step.is_send();
  if (wc.opcode != (is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
    fail("a receive has opcode %d", wc.opcode);
  const uint32_t length = step.length + (is_datagram ? kGrh : 0);
  if (wc.byte_len != length) fail("a receive has %u bytes, not %u", wc.byte_len, length);
  if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != step.has_imm())
    fail("a receive has flags %x", wc.wc_flags);
  if (step.has_imm() && wc.imm_data != step.imm)
    fail("the immediate is %08x, not %08x", wc.imm_data, step.imm);
  if (wc.qp_num != qp.qp->qp_num) fail("a receive names queue pair %u", wc.qp_num);
  if (is_datagram && wc.src_qp != qp.peer_qpn) fail("a datagram comes from %u", wc.src_qp);
}

}  // namespace

bool run_batch(Side& side, Board& board, Qp& qp, ibv_qp_type type, const Flow& out,
               const Flow& in) {
  board.prepare(out, in);
  for (size_t i = 0; i < in.steps.size(); ++i)
    if (in.steps[i].takes_receive()) board.post_receive(qp, in.steps[i], i);
  side.channel.meet(0x20);
  for (size_t i = 0; i < out.steps.size(); ++i) board.post(qp, out.steps[i], i);
  for (size_t i = 0; i < out.steps.size(); ++i) {
    if (!out.steps[i].is_signaled) continue;
    const ibv_wc wc = qp.expect_sent(i);
    if (wc.opcode != sent_as(out.steps[i].opcode)) fail("a request has opcode %d", wc.opcode);
  }
  constexpr int kLost = 2000;  // milliseconds
  const int lost_after =
      side.options.lost_after == 0 ? kLost : static_cast<int>(side.options.lost_after);
  bool complete = true;
  for (size_t i = 0; i < in.steps.size() && complete; ++i) {
    const Step& step = in.steps[i];
    if (!step.takes_receive()) continue;
    ibv_wc wc{};
    if (type == IBV_QPT_RC)
      wc = qp.received();
    else if (complete = qp.received(&wc, lost_after); !complete)
      break;
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i)
      fail("receive %llu ends with '%s' instead of %zu", static_cast<unsigned long long>(wc.wr_id),
           ibv_wc_status_str(wc.status), i);
    check_received(wc, step, qp, type == IBV_QPT_UD);
    if (type == IBV_QPT_UD) board.accept_header(step);
  }
  side.channel.meet(0x21);
  // Nothing tells when the WRITE of a UC queue pair has come.
  if (type == IBV_QPT_UC && complete)
    for (int i = 0; i < lost_after && !(complete = board.target_is_complete()); ++i) ::usleep(1000);
  const bool there = side.channel.swap(complete);
  if (complete)
    board.compare();
  else if (type == IBV_QPT_UC)
    board.compare_partly();
  for (const Flow* flow : {&out, &in}) {
    for (const Step& step : flow->steps) {
      ++side.messages;
      side.bytes += step.length;
    }
  }
  if (!complete || !there) ++side.lost;
  side.channel.meet(0x22);
  if (ibv_wc wc{}; type == IBV_QPT_RC && qp.received(&wc, 0))
    fail("receive %llu completes twice", static_cast<unsigned long long>(wc.wr_id));
  return complete && there;
}

}  // namespace exchange
