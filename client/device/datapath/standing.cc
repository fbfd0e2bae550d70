#include "client/device/datapath/standing.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "client/device/datapath/direct.h"

namespace vrdma::client {

namespace {

// Indexed by verbs::Opcode.
constexpr ibv_wc_opcode kSendOpcodes[verbs::kOpcodeCount] = {
    IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,        IBV_WC_SEND,
    IBV_WC_RDMA_READ,  IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD,   IBV_WC_LOCAL_INV,
    IBV_WC_BIND_MW,    IBV_WC_SEND,       IBV_WC_ATOMIC_WRITE};

bool in_error(verbs::QpState state) {
  return state == verbs::QpState::kErr || state == verbs::QpState::kSqe;
}

// A completion gives memory back, so a queue pair in ERR has none while a reach thread or a peer
// may still write there.
bool has_ended(Qp& qp) { return qp.may_flush() && try_to_outlast_initiator(qp); }

void describe(const ipc::RecvEntry& entry, Cq* cq, ibv_wc* out) {
  const auto opcode = static_cast<verbs::Opcode>(entry.opcode);
  out->status = static_cast<ibv_wc_status>(entry.status);
  out->opcode =
      opcode == verbs::Opcode::kRdmaWriteWithImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  out->byte_len = entry.byte_len;
  out->src_qp = entry.src_qpn;
  out->sl = entry.sl;
  if (verbs::has_immediate(opcode)) {
    out->imm_data = entry.imm;
    out->wc_flags |= IBV_WC_WITH_IMM;
  }
  if (opcode == verbs::Opcode::kSendWithInvalidate && out->status == IBV_WC_SUCCESS) {
    out->invalidated_rkey = entry.imm;
    out->wc_flags |= IBV_WC_WITH_INV;
    cq->keys_ended = true;
  }
  if ((entry.flags & ipc::kRecvGrh) != 0) out->wc_flags |= IBV_WC_GRH;
}

// False: a peer named a receive that was not posted.
bool take_receive(Qp& qp, const ipc::RecvEntry& entry, ibv_wc* out) {
  *out = {};
  if (qp.ibv.qp_base.srq != nullptr) {
    if (!Srq::of(qp.ibv.qp_base.srq)->take(entry.slot, &out->wr_id)) return false;
  } else {
    const uint32_t index = qp.rq_polled.load(std::memory_order_relaxed);
    if (index == qp.block->rq_head.load(std::memory_order_relaxed)) return false;
    out->wr_id = qp.recv_wr_ids[index & (qp.rq_depth - 1)];
    qp.rq_polled.store(index + 1, std::memory_order_release);
  }
  describe(entry, qp.recv_cq(), out);
  out->qp_num = qp.ibv.qp_base.qp_num;
  return true;
}

// A wait for one of these ends soon, unless the thread that executes has lost the processor: it is
// between the effect of a request and its result.
struct Settling {
  uint32_t tail;  // of the worker, if `marked`
  uint32_t busy;  // QpBlock::busy; odd: another thread of this process
  bool by_worker;
  [[nodiscard]] bool by_thread() const { return (busy & 1) != 0; }
};

Settling settling(const Qp& qp) {
  // Longer copies are not waited for: their results follow their last byte at once.
  constexpr uint64_t kShort = 65536;
  const ipc::QpBlock& block = *qp.block;
  Settling now{};
  now.tail = block.sq_tail.load(std::memory_order_acquire);
  const uint32_t mark = block.mark.load(std::memory_order_acquire);
  now.by_worker = (mark & 3) != static_cast<uint32_t>(ipc::Mark::kNone) &&
                  (mark & ~3u) == ipc::mark_word(ipc::Mark::kNone, now.tail) &&
                  block.sq_head.load(std::memory_order_relaxed) != now.tail;
  now.busy = block.busy.load(std::memory_order_acquire);
  if (block.aim_length.load(std::memory_order_relaxed) > kShort) now.busy = 0;
  return now;
}

}  // namespace

uint32_t look_for_receives(const Cq& cq, Qp& qp, uint32_t most) {
  if (qp.recv_cq() != &cq) return 0;
  qp.receives_due = qp.receives_standing(most);
  qp.flushes_due = false;
  if (qp.state() != verbs::QpState::kErr) return qp.receives_due;
  const uint32_t left = std::max(qp.receives_due, std::min(qp.outstanding_receives(), most));
  qp.flushes_due = left > 0 && has_ended(qp);
  return qp.receives_due = qp.flushes_due ? left : 0;
}

uint32_t look_for_receives(Srq& srq, uint32_t most) {
  srq.receives_due = 0;
  while (srq.receives_due < most && srq.inbox.stands(srq.receives_due)) ++srq.receives_due;
  return srq.receives_due;
}

// Once for each request: a worker may have been stopped.
void wait_until_settled(const Cq& cq, Qp& qp) {
  constexpr auto kPatience = std::chrono::milliseconds(20);
  constexpr auto kSpin = std::chrono::microseconds(20);
  constexpr auto kYield = std::chrono::milliseconds(1);
  if (qp.send_cq() != &cq) return;
  const Settling first = settling(qp);
  if (!first.by_worker && !first.by_thread()) return;
  if (first.by_worker && qp.waited_for == first.tail + 1) return;
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    const Settling now = settling(qp);
    if (!(now.by_worker && now.tail == first.tail) && !(now.by_thread() && now.busy == first.busy))
      return;
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > kPatience) break;
    if (waited > kYield)
      std::this_thread::sleep_for(kSpin);
    else if (waited > kSpin)
      std::this_thread::yield();
  }
  qp.waited_for = first.tail + 1;
}

void look_for_sends(const Cq& cq, Qp& qp) {
  if (qp.send_cq() != &cq) return;
  const verbs::QpState state = qp.state();
  qp.errors_due = in_error(state) && qp.has_outstanding_sends() &&
                  (state == verbs::QpState::kErr ? has_ended(qp) : qp.may_flush());
  if (qp.errors_due) flush_sends(qp);
  qp.sends_due = state == verbs::QpState::kErr && !qp.errors_due
                     ? qp.polled.load(std::memory_order_relaxed)
                     : qp.block->sq_tail.load(std::memory_order_acquire);
}

// The results of executed requests, in order; skips unsignaled successes.
int take_sends(const Cq& cq, Qp& qp, int count, ibv_wc* wc) {
  if (qp.send_cq() != &cq || (qp.polled.load(std::memory_order_acquire) == qp.sends_due &&
                              !qp.keys_ended.load(std::memory_order_relaxed)))
    return 0;
  const std::lock_guard lock(qp.poll_mutex);
  const uint32_t tail = qp.sends_due;
  uint32_t polled = qp.polled.load(std::memory_order_relaxed);
  // Whoever posts has freed some, or the daemon has withdrawn the ring.
  const int most = tail - polled > qp.sq_depth ? 0 : count;
  const uint32_t mask = qp.sq_depth - 1;
  const PostedSend* const all_posted = qp.posted.data();
  const ipc::SendResult* const results = qp.results;
  const uint32_t qp_num = qp.ibv.qp_base.qp_num;
  int got = 0;
  bool keys_ended = qp.keys_ended.load(std::memory_order_relaxed);
  while (polled != tail && got < most) {
    const PostedSend posted = all_posted[polled & mask];
    const ipc::SendResult result = results[polled & mask];
    if (result.status != IBV_WC_SUCCESS && !qp.errors_due) break;
    ++polled;
    keys_ended |= verbs::is_local(static_cast<verbs::Opcode>(posted.opcode));
    if (!posted.signaled && result.status == IBV_WC_SUCCESS) continue;
    wc[got++] = {posted.wr_id,
                 static_cast<ibv_wc_status>(result.status),
                 kSendOpcodes[posted.opcode],
                 0,
                 result.byte_len,
                 {0},
                 qp_num,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0};
  }
  qp.polled.store(polled, std::memory_order_release);
  if (!keys_ended) return got;
  qp.keys_ended.store(false, std::memory_order_relaxed);
  qp.send_cq()->keys_ended = true;
  return got;
}

int take_receives(const Cq& cq, Qp& qp, int count, ibv_wc* wc) {
  if (qp.recv_cq() != &cq) return 0;
  int got = 0;
  for (; qp.receives_due > 0 && got < count; --qp.receives_due) {
    ReceiveReader& ring = qp.inbox.stands() ? qp.inbox : qp.from_peer;
    if (!ring.stands()) break;
    if (take_receive(qp, ring.next(), &wc[got])) ++got;
    ring.advance();
  }
  if (qp.receives_due == 0 || got == count) return got;
  if (qp.flushes_due)
    got += flush_receives(qp, std::min(count - got, static_cast<int>(qp.receives_due)), wc + got);
  qp.receives_due = 0;
  return got;
}

int take_receives(Srq& srq, int count, ibv_wc* wc) {
  int got = 0;
  for (; srq.receives_due > 0 && got < count; --srq.receives_due, srq.inbox.advance()) {
    const ipc::RecvEntry& entry = srq.inbox.next();
    ibv_wc& out = wc[got];
    out = {};
    if (!srq.take(entry.slot, &out.wr_id)) continue;
    ++got;
    describe(entry, srq.cq, &out);
    out.qp_num = entry.qpn;
  }
  return got;
}

namespace {
bool send_stands(Qp& qp) {
  free_unsignaled(qp);
  // What is left begins with a completion: in an error state, with an error at the latest.
  if (in_error(qp.state()) && qp.may_flush()) return qp.has_outstanding_sends();
  const uint32_t next = qp.polled.load(std::memory_order_relaxed) & (qp.sq_depth - 1);
  return qp.has_results() && qp.results[next].status == IBV_WC_SUCCESS;
}
}  // namespace

bool stands(const Cq& cq, Qp& qp) {
  const bool failed = qp.state() == verbs::QpState::kErr;
  if (failed && !qp.may_flush()) return false;  // the daemon wakes the CQ when it may
  if (qp.send_cq() == &cq && send_stands(qp)) return true;
  return qp.recv_cq() == &cq &&
         (qp.receives_standing(1) > 0 || (failed && qp.outstanding_receives() > 0));
}

void discard_receives(Qp& qp) {
  if (qp.ibv.qp_base.srq == nullptr) return;
  ibv_wc ignored;
  for (ReceiveReader* ring : {&qp.inbox, &qp.from_peer})
    for (; ring->stands(); ring->advance()) (void)take_receive(qp, ring->next(), &ignored);
}

}  // namespace vrdma::client
