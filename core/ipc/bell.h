// Telling of a completion: the CQ's owner when it polls, and its completion channel. Used by
// whoever publishes a completion: the program itself, a peer on a direct link, a worker.
#pragma once

#include <bit>

#include "core/ipc/event_ends.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

// Eight marks at a time, of which the first stands at a multiple of eight.
[[nodiscard]] inline uint64_t eight_of(const uint8_t* marks) {
  using Eight [[gnu::may_alias]] = uint64_t;
  return __atomic_load_n(static_cast<const Eight*>(__builtin_assume_aligned(marks, sizeof(Eight))),
                         __ATOMIC_ACQUIRE);
}

// To be called after the publication: queue pair `qpn` has something in the CQ.
inline void announce(CqBell& bell, uint32_t qpn) {
  if (bell.many.load(std::memory_order_relaxed) == 0) return;
  const uint32_t place = qpn % kNews;
  __atomic_store_n(&bell.news[place], uint8_t{1}, __ATOMIC_RELEASE);
  __atomic_store_n(&bell.groups[place / kNewsGroup], uint8_t{1}, __ATOMIC_RELEASE);
}

// The owner's side: clears the marks of a group and calls found(place) for each that was set,
// beginning at the one numbered `first`, modulo their number, so that all get their turn. A
// producer stores from the entry to the group, the owner clears from the group to the mark, with a
// fence before each next look: so he sees the entry, or a mark stands that was set after he cleared
// it. Marks are bytes and are stored, not exchanged: none of a neighbour's is lost, and nobody
// waits for the other's cache line.
template <class Found>
void take_news(CqBell& bell, uint32_t group, uint32_t first, Found found) {
  __atomic_store_n(&bell.groups[group], uint8_t{0}, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint8_t* const news = &bell.news[group * kNewsGroup];
  uint64_t marked = 0;
  for (uint32_t i = 0; i < kNewsGroup; i += 8) {
    if (eight_of(news + i) == 0) continue;
    for (uint32_t each = i; each < i + 8; ++each) {
      if (__atomic_load_n(&news[each], __ATOMIC_RELAXED) == 0) continue;
      __atomic_store_n(&news[each], uint8_t{0}, __ATOMIC_RELAXED);
      marked |= uint64_t{1} << each;
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  marked = std::rotr(marked, static_cast<int>(first % kNewsGroup));
  for (; marked != 0; marked &= marked - 1)
    found(group * kNewsGroup +
          (first + static_cast<uint32_t>(std::countr_zero(marked))) % kNewsGroup);
}

// Whether take_news() of some group would find something.
[[nodiscard]] inline bool has_news(const CqBell& bell) {
  uint64_t some = 0;
  for (uint32_t i = 0; i < kNewsGroups; i += 8) some |= eight_of(&bell.groups[i]);
  return some != 0;
}

// Tells its channel, at `write_end`, of the CQ's `slot`.
inline void tell_anyway(int write_end, uint32_t slot) {
  const ChannelMessage message{slot, 0};
  // There is room for one message of each CQ. Who fills it otherwise will find the completion.
  (void)put_event(write_end, &message, sizeof message);
}

// To be called after the publication. If the owner of the CQ asked to be told (of a solicited
// completion only, perhaps), takes the request and tells it.
inline void tell(CqBell& bell, int write_end, uint32_t slot, bool solicited) {
  // Pairs with the fence of ibv_req_notify_cq: either it sees the completion, or we see the arm.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t arm = bell.arm.load(std::memory_order_relaxed);
  if (arm == static_cast<uint32_t>(Arm::kNone)) return;
  if (arm == static_cast<uint32_t>(Arm::kSolicited) && !solicited) return;
  if (!bell.arm.compare_exchange_strong(arm, static_cast<uint32_t>(Arm::kNone))) return;
  tell_anyway(write_end, slot);
}

}  // namespace vrdma::ipc
