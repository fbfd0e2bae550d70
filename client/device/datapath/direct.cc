// Executing by ourselves on a direct link, and who executes when (see transport/send_ring.h for
// the token's states). All of it under Qp::send_mutex.
//
// execute() does only what succeeds at once. Everything else (no receive, memory to be reached,
// any error) is handed to the worker, which knows what to do with it.
#include "client/device/datapath/direct.h"

#include <unistd.h>

#include <chrono>

#include "client/verbs/virtual.h"
#include "core/base/asymmetric_fence.h"

namespace vrdma::client {

namespace {

uint32_t value(ipc::Token token) { return static_cast<uint32_t>(token); }
// One that names the daemon too.
uint32_t value(ipc::Token token, const Qp& qp) {
  return ipc::token_word(token, qp.context->session.epoch());
}

// The same of a plan: of all pieces together, what lies between them included.
bool aim_at(const Qp& qp, const rdma::Plan& plan, uint32_t keys) {
  const bool answers = plan.opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(plan.opcode);
  const rdma::PieceList& stored = answers ? plan.source : plan.target;
  uint64_t first = UINT64_MAX, last = 0;
  for (uint32_t i = 0; i < stored.count; ++i) {
    if (stored.pieces[i].space == nullptr) continue;
    first = std::min(first, stored.pieces[i].addr);
    last = std::max(last, stored.pieces[i].addr + stored.pieces[i].length);
  }
  const bool stores = first < last && plan.opcode != verbs::Opcode::kRdmaRead;
  return aim(qp, stores ? first : 0, stores ? last - first : 0, keys);
}

// Claims the receive that `plan` was made with. After this nothing may fail, so the places that the
// message goes to are mapped before.
bool claim_receive(Qp& qp, const rdma::Candidate& candidate, const rdma::Plan& plan) {
  const Direct& direct = *qp.direct;
  if (!rdma::map_pieces(plan.target)) return false;
  qp.block->claiming.store(candidate.receive.slot + 1, std::memory_order_release);
  return rdma::claim(direct.shared, candidate,
                     ipc::claimed_by(direct.link, direct.responder.next_receive));
}

// A request that takes a receive of the peer's SRQ.
bool execute_shared(Qp& qp, rdma::WorkRequest& request, const rdma::Requester& requester,
                    rdma::Plan* plan, uint32_t keys) {
  constexpr int kAttempts = 64;  // each failure is another initiator's success
  Direct& direct = *qp.direct;
  rdma::Candidate candidate;
  if (rdma::prepare_requester(request, requester, plan) != rdma::Outcome::kDone) return false;
  for (int i = 0; i < kAttempts; ++i) {
    if (rdma::find_receive(direct.shared, &candidate) != rdma::Outcome::kDone) return false;
    direct.responder.claimed = &candidate.receive;
    const auto prepared = rdma::prepare_responder(request, direct.responder, plan);
    direct.responder.claimed = nullptr;
    if (prepared != rdma::Outcome::kDone || plan->reached || !aim_at(qp, *plan, keys)) return false;
    if (claim_receive(qp, candidate, *plan)) return rdma::perform(request, *plan);
  }
  return false;
}

// A peer that is at work posts its next receive in a moment. One that has stopped costs the queue
// this wait once: then the worker waits.
void await_receive(const Qp& qp) {
  constexpr auto kPatience = std::chrono::microseconds(20);
  const Direct& direct = *qp.direct;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (direct.responder.receives.head->load(std::memory_order_relaxed) ==
             direct.responder.next_receive &&
         link_is_direct(qp) && std::chrono::steady_clock::now() < deadline)
    continue;
}

bool execute_marked(Qp& qp, rdma::WorkRequest& request, rdma::Plan* plan) {
  if (!link_is_direct(qp) || !qp.may_execute()) return false;
  Direct& direct = *qp.direct;
  const uint32_t keys = direct.peer->key_changes();
  direct.responder.access = direct.block->access.load(std::memory_order_relaxed);
  direct.responder.next_receive = direct.outbox->head.load(std::memory_order_relaxed);
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  if ((opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(opcode)) && !qp.may_read)
    return false;
  rdma::Requester requester{qp.context->memory(), qp.pd_handle};
  requester.memory.keys.remember(&qp.known);
  const bool shared = direct.shared.block != nullptr && verbs::consumes_receive(opcode);
  if (shared) {
    if (!execute_shared(qp, request, requester, plan, keys)) return false;
  } else {
    rdma::Outcome prepared = rdma::prepare(request, requester, direct.responder, plan);
    if (prepared == rdma::Outcome::kNoReceive) {
      await_receive(qp);
      prepared = rdma::prepare(request, requester, direct.responder, plan);
    }
    if (prepared != rdma::Outcome::kDone || plan->reached || !aim_at(qp, *plan, keys) ||
        !rdma::perform(request, *plan))
      return false;
  }
  if (!plan->receives) return true;
  say_nothing_follows(qp);
  ipc::publish(direct.outbox, direct.outbox_depth, direct.responder.next_receive,
               rdma::receive_entry(request, *plan));
  return true;
}

// What changes keys is the worker's.
bool changes_keys(const rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  return verbs::is_local(opcode) || opcode == verbs::Opcode::kSendWithInvalidate;
}

bool run_request(Qp& qp, rdma::WorkRequest& request) {
  rdma::Plan plan;
  if (changes_keys(request)) return false;
  const Busy busy(qp.block->busy, qp.context->cheap_fence);
  if (!execute_marked(qp, request, &plan)) return false;
  const Direct& direct = *qp.direct;
  // The worker tells the SRQ's owner when too few receives are left.
  if (plan.receives && direct.shared.block != nullptr) {
    const uint32_t limit = direct.shared.block->limit.load();
    if (limit != 0 && rdma::count_waiting(direct.shared) < limit) qp.context->ring(qp.slot);
  }
  const bool answers = plan.opcode == verbs::Opcode::kRdmaRead || verbs::is_atomic(plan.opcode);
  put_result(qp, answers ? static_cast<uint32_t>(plan.length) : 0);
  if (answers) count_direct_read(qp, plan.length);
  retire(qp, 1, plan.length, plan.receives, (request.wqe.flags & ipc::kSolicited) != 0,
         (request.wqe.flags & ipc::kSignaled) != 0);
  return true;
}

// Asks a worker that executes for the token, for a moment.
bool ask(Qp& qp) {
  constexpr auto kPatience = std::chrono::microseconds(2);
  if (qp.block->blocked.load(std::memory_order_relaxed) != 0) return false;
  ipc::Word& token = qp.block->token;
  const uint32_t worker = value(ipc::Token::kWorker, qp), asked = value(ipc::Token::kAsked, qp);
  uint32_t expected = worker;
  if (!token.compare_exchange_strong(expected, asked) && expected != value(ipc::Token::kFree))
    return false;
  if (expected == value(ipc::Token::kFree))
    return token.compare_exchange_strong(expected, value(ipc::Token::kClient));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  do {
    const uint32_t now = token.load(std::memory_order_acquire);
    if (now == value(ipc::Token::kClient)) return true;
    if (now == value(ipc::Token::kFree)) break;
  } while (std::chrono::steady_clock::now() < deadline);
  expected = asked;
  if (token.compare_exchange_strong(expected, worker)) return false;
  if (expected == value(ipc::Token::kClient)) return true;
  return expected == value(ipc::Token::kFree) &&
         token.compare_exchange_strong(expected, value(ipc::Token::kClient));
}

}  // namespace

bool take_token(Qp& qp) {
  if (!link_is_direct(qp)) return false;
  if (!qp.owns_token) {
    uint32_t free = value(ipc::Token::kFree);
    if (!qp.block->token.compare_exchange_strong(free, value(ipc::Token::kClient)) && !ask(qp))
      return false;
    qp.owns_token = true;
  }
  if (!ring_is_empty(qp)) pump(qp);
  return qp.owns_token && ring_is_empty(qp);
}

bool execute(Qp& qp, rdma::WorkRequest& request) {
  // The result's slot is that of the request, so the heads move together.
  if (!run_request(qp, request)) return false;
  ++qp.sq_head;
  qp.block->sq_head.store(qp.sq_head, std::memory_order_relaxed);
  return true;
}

void pump(Qp& qp) {
  if (!qp.owns_token) return;
  while (!ring_is_empty(qp)) {
    const uint32_t tail = qp.block->sq_tail.load(std::memory_order_relaxed);
    const uint8_t* from = qp.sq + uint64_t{tail & (qp.sq_depth - 1)} * qp.send_stride;
    rdma::WorkRequest request;
    std::memcpy(&request, from, std::min<size_t>(qp.send_stride, sizeof request));
    if (run_request(qp, request)) continue;
    hand_over(qp);
    return;
  }
}

void hand_over(Qp& qp) {
  if (qp.context->died_at_ms.load(std::memory_order_relaxed) != 0) return;
  qp.owns_token = false;
  qp.block->token.store(value(ipc::Token::kWorker, qp), std::memory_order_seq_cst);
  qp.context->ring(qp.slot);
}

namespace {

// What a dead worker had done of the first request of the ring, as SerialSender::settle() decides
// it: what is done is retired, not repeated.
void settle(Qp& qp) {
  if (ring_is_empty(qp)) return;
  const uint32_t first = qp.block->sq_tail.load(std::memory_order_relaxed);
  const PostedSend& request = qp.posted[first & (qp.sq_depth - 1)];
  const auto opcode = static_cast<verbs::Opcode>(request.opcode);
  const uint32_t mark = qp.block->mark.load(std::memory_order_acquire);
  bool done = mark == ipc::mark_word(ipc::Mark::kDone, first);
  if (mark == ipc::mark_word(ipc::Mark::kBegun, first) && verbs::consumes_receive(opcode))
    done = ipc::settle_head(qp.direct->outbox, qp.direct->outbox_depth) ==
           qp.block->mark_receive.load(std::memory_order_relaxed) + 1;
  if (!done) return;
  put_result(qp, verbs::is_atomic(opcode) ? sizeof(uint64_t) : 0);
  qp.block->sq_tail.store(first + 1, std::memory_order_release);
  if (request.signaled) qp.send_cq()->notify(qp, false);
}

// Whether a dead worker may have done the first request of the ring, or not, or has not brought its
// answer. The next one can find out.
bool is_in_doubt(const Qp& qp) {
  const uint32_t first = qp.block->sq_tail.load(std::memory_order_acquire);
  const uint32_t mark = qp.block->mark.load(std::memory_order_acquire);
  return !ring_is_empty(qp) &&
         (mark == ipc::mark_word(ipc::Mark::kBegun, first) ||
          mark == ipc::mark_word(ipc::Mark::kChanged, first)) &&
         !verbs::consumes_receive(
             static_cast<verbs::Opcode>(qp.posted[first & (qp.sq_depth - 1)].opcode));
}

}  // namespace

void reclaim(Qp& qp, uint32_t epoch) {
  if (!link_is_direct(qp)) return;
  if (!qp.owns_token) {
    if (is_in_doubt(qp)) return;
    ipc::Word& token = qp.block->token;
    uint32_t held = token.load();
    do {
      if (ipc::is_workers(held) && held >> 8 != epoch) return;
    } while (!token.compare_exchange_weak(held, value(ipc::Token::kClient)));
    qp.owns_token = true;
    settle(qp);
  }
  pump(qp);
}

}  // namespace vrdma::client
