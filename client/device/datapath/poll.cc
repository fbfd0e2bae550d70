// Polling a completion queue: the queue pairs that complete in it, and which of them have
// completions.
#include <algorithm>
#include <bit>
#include <ctime>
#include <utility>

#include "client/device/objects.h"
#include "client/verbs/virtual.h"
#include "core/ipc/bell.h"

namespace vrdma::client {

namespace {

// Indexed by verbs::Opcode.
constexpr ibv_wc_opcode kSendOpcodes[verbs::kOpcodeCount] = {
    IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,        IBV_WC_SEND,
    IBV_WC_RDMA_READ,  IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD,   IBV_WC_LOCAL_INV,
    IBV_WC_BIND_MW,    IBV_WC_SEND,       IBV_WC_ATOMIC_WRITE};

[[nodiscard]] bool has_results(const Qp& qp) {
  return qp.block->sq_tail.load(std::memory_order_acquire) !=
         qp.polled.load(std::memory_order_relaxed);
}

// The results of executed requests, in order; skips unsignaled successes. Stops at an error, unless
// told otherwise: see flush().
int drain_sends(Qp& qp, int count, ibv_wc* wc, bool errors = false) {
  const std::lock_guard lock(qp.poll_mutex);
  const uint32_t tail = qp.block->sq_tail.load(std::memory_order_acquire);
  uint32_t polled = qp.polled.load(std::memory_order_relaxed);
  if (tail - polled > qp.sq_depth) return 0;  // the daemon has withdrawn the ring
  const uint32_t mask = qp.sq_depth - 1;
  const PostedSend* const all_posted = qp.posted.data();
  const ipc::SendResult* const results = qp.results;
  const uint32_t qp_num = qp.ibv.qp_base.qp_num;
  int got = 0;
  bool keys_ended = false;
  while (polled != tail && got < count) {
    const PostedSend posted = all_posted[polled & mask];
    const ipc::SendResult result = results[polled & mask];
    if (result.status != IBV_WC_SUCCESS && !errors) break;
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
  if (keys_ended) qp.send_cq()->keys_ended = true;
  return got;
}

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

// Takes the receives of an XRC SRQ.
int drain_shared(Srq& srq, int count, ibv_wc* wc) {
  int got = 0;
  for (; got < count && srq.inbox.stands(); srq.inbox.advance()) {
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

// Takes at most `count` completions from at most `entries` entries.
int drain_ring(Qp& qp, ReceiveReader& ring, uint32_t entries, int count, ibv_wc* wc) {
  int got = 0;
  for (; entries > 0 && got < count && ring.stands(); --entries, ring.advance())
    if (take_receive(qp, ring.next(), &wc[got])) ++got;
  return got;
}

[[nodiscard]] bool has_receives(const Qp& qp) { return qp.from_peer.stands() || qp.inbox.stands(); }

// The worker's receives precede the peer's, because the token passed from the worker to the peer in
// between. A poller that counts the peer's entries first therefore sees all of the worker's.
int drain_receives(Qp& qp, int count, ibv_wc* wc) {
  uint32_t delivered = 0;
  while (delivered < static_cast<uint32_t>(count) && qp.from_peer.stands(delivered)) ++delivered;
  int got = drain_ring(qp, qp.inbox, UINT32_MAX, count, wc);
  if (delivered > 0) got += drain_ring(qp, qp.from_peer, delivered, count - got, wc + got);
  return got;
}

void discard(Qp& qp, ReceiveReader& ring) {
  ibv_wc ignored[16];
  while (drain_ring(qp, ring, UINT32_MAX, 16, ignored) > 0) continue;
}

bool in_error(verbs::QpState state) {
  return state == verbs::QpState::kErr || state == verbs::QpState::kSqe;
}

// The daemon wakes the CQ when the last byte has arrived. A dead one writes nothing.
bool may_flush(const Qp& qp) {
  return qp.has_failed() || qp.block->arriving.load(std::memory_order_acquire) == 0;
}

// What is left in a queue pair in an error state, the error itself included: a completion gives
// memory back, so there is none while a reach thread or a peer may still write there.
int flush(Qp& qp, const Cq& cq, int count, ibv_wc* wc) {
  const verbs::QpState state = qp.state();
  int got = 0;
  if (!may_flush(qp) || (state == verbs::QpState::kErr && !try_to_outlast_initiator(qp))) return 0;
  if (in_error(state) && qp.send_cq() == &cq) {
    flush_sends(qp);
    got = drain_sends(qp, count, wc, true);
  }
  if (state == verbs::QpState::kErr && qp.recv_cq() == &cq) {
    got += drain_receives(qp, count - got, wc + got);
    got += flush_receives(qp, count - got, wc + got);
  }
  return got;
}

// True if a poll may return something of the queue pair now. Also true if only unsignaled successes
// remain, or requests to flush.
bool has_news(const Cq& cq, const Qp& qp) {
  const auto published = [](const ipc::Word& head) { return head.load(std::memory_order_acquire); };
  if (qp.state() == verbs::QpState::kErr && !may_flush(qp)) return false;  // it wakes the CQ
  if (qp.send_cq() == &cq) {
    if (has_results(qp)) return true;
    if (in_error(qp.state()) && may_flush(qp) &&
        published(qp.block->sq_head) != qp.polled.load(std::memory_order_relaxed))
      return true;
  }
  if (qp.recv_cq() != &cq) return false;
  return has_receives(qp) ||
         (qp.state() == verbs::QpState::kErr && may_flush(qp) && qp.ibv.qp_base.srq == nullptr &&
          published(qp.block->rq_head) != qp.rq_polled.load(std::memory_order_relaxed));
}

// A clock that is cheap to read, and a few milliseconds in its units.
#if defined(__x86_64__)
uint64_t ticks() { return __builtin_ia32_rdtsc(); }
constexpr uint64_t kCheckTicks = 40'000'000;
#else
uint64_t ticks() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
constexpr uint64_t kCheckTicks = 20'000'000;
#endif

}  // namespace

bool would_find(const Cq& cq) {
  for (const Srq* srq : cq.shared)
    if (srq->inbox.stands()) return true;
  if (cq.has_many()) return ipc::has_news(*cq.bell);
  return std::any_of(cq.queue_pairs.begin(), cq.queue_pairs.end(),
                     [&](const Qp* qp) { return has_news(cq, *qp); });
}

void discard_receives(Qp& qp) {
  if (qp.ibv.qp_base.srq == nullptr) return;
  discard(qp, qp.inbox);
  discard(qp, qp.from_peer);
}

namespace {

// All completions of one queue pair in the CQ, up to `count`. Sends and receives alternate in being
// first.
int drain(const Cq& cq, Qp& qp, int count, ibv_wc* wc) {
  if (qp.state() == verbs::QpState::kErr) return flush(qp, cq, count, wc);
  const bool sends = qp.send_cq() == &cq && has_results(qp);
  const bool receives = qp.recv_cq() == &cq && has_receives(qp);
  const bool receives_first = cq.turn % 2 != 0;
  int got = 0;
  if (receives && receives_first) got = drain_receives(qp, count, wc);
  if (sends && got < count) got += drain_sends(qp, count - got, wc + got);
  if (receives && !receives_first && got < count) got += drain_receives(qp, count - got, wc + got);
  if (got < count && in_error(qp.state())) got += flush(qp, cq, count - got, wc + got);
  return got;
}

int poll_shared(Cq& cq, int count, ibv_wc* wc) {
  int got = 0;
  for (Srq* srq : cq.shared)
    if (got < count) got += drain_shared(*srq, count - got, wc + got);
  return got;
}

// Polls a list of queue pairs. The start rotates, so that polls of few completions reach all of
// them.
int poll_each(Cq& cq, const std::vector<Qp*>& queue_pairs, int count, ibv_wc* wc) {
  const size_t all = queue_pairs.size();
  size_t index = cq.next < all ? cq.next : 0;
  int got = 0;
  for (size_t left = all; left > 0 && got < count; --left) {
    got += drain(cq, *queue_pairs[index], count - got, wc + got);
    if (++index == all) index = 0;
  }
  if (got == count) cq.next = index;
  return got;
}

void remember(Cq& cq, Qp* qp) {
  if (std::find(cq.active.begin(), cq.active.end(), qp) != cq.active.end()) return;
  if (cq.active.size() == Cq::kMostActive) cq.active.erase(cq.active.begin());
  cq.active.push_back(qp);
}

// Polls the queue pairs that have news, starting at another one each time.
int poll_news(Cq& cq, int count, ibv_wc* wc) {
  ipc::CqBell& bell = *cq.bell;
  int got = 0;
  for (uint32_t i = 0; i < ipc::kNewsGroups && got < count; ++i) {
    const uint32_t first = cq.turn / 8, group = (first + i) % ipc::kNewsGroups;
    if (__atomic_load_n(&bell.groups[group], __ATOMIC_ACQUIRE) == 0) continue;
    ipc::take_news(bell, group, first / ipc::kNewsGroups, [&](uint32_t place) {
      std::vector<Qp*>& sharing = cq.by_news[place];
      for (Qp* qp : sharing) {
        const int before = got;
        if (got < count) got += drain(cq, *qp, count - got, wc + got);
        if (got > before) remember(cq, qp);
        if (has_news(cq, *qp)) ipc::announce(bell, qp->ibv.qp_base.qp_num);
      }
      // Another one of those that share the mark comes first next time.
      if (sharing.size() > 1) std::rotate(sharing.begin(), sharing.begin() + 1, sharing.end());
    });
  }
  return got;
}

// A recently active queue pair is likely to have completions, so it is polled without reading its
// news mark. Others are polled when the batch is not full, and first in every eighth poll.
int poll_many(Cq& cq, int count, ibv_wc* wc) {
  int got = cq.turn % 8 != 0 ? poll_each(cq, cq.active, count, wc) : 0;
  if (got < count && ipc::has_news(*cq.bell)) got += poll_news(cq, count - got, wc + got);
  return got;
}

// Housekeeping when a poll finds nothing. Reading the clock takes as long as the poll, so a
// spinning program does it only in every 16th poll, a slow one in each.
void look_around(Cq& cq) {
  constexpr unsigned kSpinning = 15;
  Context& context = *Context::of(cq.ibv.context);
  const bool dead = context.died_at_ms.load(std::memory_order_relaxed) != 0;
  if (cq.skips > 0 && !dead) {
    --cq.skips;
    return;
  }
  const uint64_t now = ticks();
  cq.skips = now - std::exchange(cq.clock, now) < kCheckTicks ? kSpinning : 0;
  const uint64_t pause = dead ? kCheckTicks / 16 : kCheckTicks;
  if (now - context.checked_at.load(std::memory_order_relaxed) >= pause) {
    context.checked_at.store(now, std::memory_order_relaxed);
    context.check_daemon();
    cq.announce_all();  // in case a producer could not announce its completion
  }
  // Without a daemon, a waiting request is retried when the program calls.
  if (context.died_at_ms.load(std::memory_order_relaxed) != 0)
    for (Qp* qp : cq.queue_pairs) {
      const std::lock_guard send_lock(qp->send_mutex);
      pump(*qp);
    }
}

}  // namespace

int poll_cq(ibv_cq* ibv, int count, ibv_wc* wc) {
  Cq& cq = *Cq::of(ibv);
  const std::lock_guard lock(cq.mutex);
  if (cq.sweep_until != 0) {
    cq.announce_all();
    if (ticks() > cq.sweep_until) cq.sweep_until = 0;
  }
  ++cq.turn;
  int got = cq.has_many() ? poll_many(cq, count, wc) : poll_each(cq, cq.queue_pairs, count, wc);
  if (!cq.shared.empty()) got += poll_shared(cq, count - got, wc + got);
  if (std::exchange(cq.keys_ended, false)) wait_for_initiators(*Context::of(ibv->context));
  // Adapters also report completions that existed when the program armed the CQ. Programs that take
  // a few completions per event depend on it (perftest); for others the next poll is soon enough.
  if (got == count && ibv->channel != nullptr &&
      cq.bell->arm.load(std::memory_order_relaxed) == static_cast<uint32_t>(ipc::Arm::kNext) &&
      would_find(cq))
    cq.wake(false);
  if (got == 0) look_around(cq);
  return got;
}

void Cq::join(Qp* qp) {
  constexpr size_t kFew = 8;
  const auto add = [](std::vector<std::vector<Qp*>>* to, Qp* its) {
    (*to)[its->ibv.qp_base.qp_num % ipc::kNews].push_back(its);
  };
  queue_pairs.push_back(qp);
  if (has_many()) {
    add(&by_news, qp);
  } else if (queue_pairs.size() > kFew) {
    std::vector<std::vector<Qp*>> sorted(ipc::kNews);
    for (Qp* its : queue_pairs) add(&sorted, its);
    by_news = std::move(sorted);
    bell->many.store(1);
    sweep_until = ticks() + kCheckTicks;
  }
  ipc::announce(*bell, qp->ibv.qp_base.qp_num);
}

void Cq::leave(Qp* qp) {
  std::erase(queue_pairs, qp);
  std::erase(active, qp);
  if (has_many()) std::erase(by_news[qp->ibv.qp_base.qp_num % ipc::kNews], qp);
}

void Cq::announce_all() {
  for (size_t i = 0; i < by_news.size(); ++i)
    if (!by_news[i].empty()) ipc::announce(*bell, static_cast<uint32_t>(i));
}

void Cq::wake(bool solicited) {
  ipc::tell(*bell, Channel::of(ibv.channel)->wake.get(), slot, solicited);
}

}  // namespace vrdma::client
