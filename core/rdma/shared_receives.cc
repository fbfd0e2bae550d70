#include "core/rdma/shared_receives.h"

#include <algorithm>
#include <cstring>

namespace vrdma::rdma {

Outcome read_receive(const SharedReceives& queue, uint32_t slot, Receive* receive) {
  const uint8_t* from = queue.wqes + uint64_t{slot} * ipc::recv_stride(queue.max_sge);
  ipc::RecvWqe wqe;
  std::memcpy(&wqe, from, sizeof wqe);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // It may be written anew at this moment: then the claim will fail, and this was nothing.
  receive->wr_id = wqe.wr_id;
  receive->slot = slot;
  receive->num_sge = wqe.num_sge;
  if (wqe.num_sge > queue.max_sge) return Outcome::kPeerBroken;
  std::memcpy(receive->sges, from + sizeof wqe, wqe.num_sge * sizeof(verbs::Sge));
  std::atomic_thread_fence(std::memory_order_acquire);
  return Outcome::kDone;
}

namespace {

// Where the search for a receive begins: at the hint, or, if the hint is out of range, at the
// oldest entry that the ring can still hold.
uint32_t begin_of(uint32_t head, uint32_t hint, uint32_t depth) {
  return head - hint > depth ? head - depth : hint;
}

Outcome find_in(const SharedReceives& queue, const uint32_t* slots, const ipc::Word& head_word,
                ipc::Word& hint, Candidate* candidate) {
  const uint32_t head = head_word.load(std::memory_order_acquire);
  candidate->hint = &hint;
  candidate->hint_was = hint.load(std::memory_order_relaxed);
  for (uint32_t i = begin_of(head, candidate->hint_was, queue.depth); i != head; ++i) {
    const uint32_t slot = __atomic_load_n(&slots[i & (queue.depth - 1)], __ATOMIC_RELAXED);
    if (slot >= queue.depth) return Outcome::kPeerBroken;
    candidate->word = queue.claims->words()[slot].load(std::memory_order_acquire);
    if (!ipc::is_posted(candidate->word)) continue;
    candidate->index = i;
    const Outcome copied = read_receive(queue, slot, &candidate->receive);
    if (queue.claims->words()[slot].load(std::memory_order_relaxed) == candidate->word)
      return copied;
    // It was claimed meanwhile; if it was posted anew, that stands beyond `head`.
  }
  if (candidate->hint_was != head)  // all are claimed: nobody need look at them again
    hint.compare_exchange_strong(candidate->hint_was, head);
  return Outcome::kNoReceive;
}

uint32_t waiting_in(const SharedReceives& queue, const ipc::Word& head, const ipc::Word& hint) {
  return std::min(head.load(std::memory_order_acquire) - hint.load(std::memory_order_relaxed),
                  queue.depth);
}

}  // namespace

SharedReceives SharedReceives::at(const ipc::SrqBlock* block, ipc::SrqClaims* claims,
                                  uint32_t depth, uint32_t max_sge) {
  return {block, claims, reinterpret_cast<const uint8_t*>(block) + ipc::srq_wqes_at(depth), depth,
          max_sge};
}

const uint32_t* SharedReceives::posted() const {
  return reinterpret_cast<const uint32_t*>(block + 1);
}

const uint32_t* SharedReceives::returned() const { return posted() + depth; }

Outcome find_receive(const SharedReceives& queue, Candidate* candidate) {
  const Outcome found = find_in(queue, queue.returned(), queue.block->returned_head,
                                queue.claims->returned_hint, candidate);
  if (found != Outcome::kNoReceive) return found;
  return find_in(queue, queue.posted(), queue.block->head, queue.claims->hint, candidate);
}

bool claim(const SharedReceives& queue, const Candidate& candidate, uint64_t claimer) {
  uint64_t word = candidate.word;
  if (!queue.claims->words()[candidate.receive.slot].compare_exchange_strong(word, claimer))
    return false;
  // If the hint has changed, another claimer has moved it, or a receive before it was given back.
  uint32_t hint = candidate.hint_was;
  candidate.hint->compare_exchange_strong(hint, candidate.index + 1);
  return true;
}

uint32_t count_waiting(const SharedReceives& queue) {
  return waiting_in(queue, queue.block->head, queue.claims->hint) +
         waiting_in(queue, queue.block->returned_head, queue.claims->returned_hint);
}

}  // namespace vrdma::rdma
