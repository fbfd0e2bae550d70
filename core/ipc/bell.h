// Notifies the owner of a CQ of completions: through the CQ's marks, which it polls, and through
// its completion channel. Used by any publisher: the program itself, a peer on a direct link, a
// worker.
#pragma once

#include <bit>

#include "core/ipc/event_ends.h"
#include "core/ipc/layout.h"
#include "core/ipc/messages.h"

namespace vrdma::ipc {

// Loads eight marks at once. `marks` must be aligned to eight bytes.
[[nodiscard]] inline uint64_t eight_of(const uint8_t* marks) {
  using Eight [[gnu::may_alias]] = uint64_t;
  return __atomic_load_n(static_cast<const Eight*>(__builtin_assume_aligned(marks, sizeof(Eight))),
                         __ATOMIC_ACQUIRE);
}

// Call after publishing a completion: marks queue pair `qpn` in the CQ's bell.
inline void announce(CqBell& bell, uint32_t qpn) {
  if (bell.many.load(std::memory_order_relaxed) == 0) return;
  const uint32_t place = qpn % kNews;
  __atomic_store_n(&bell.news[place], uint8_t{1}, __ATOMIC_RELEASE);
  __atomic_store_n(&bell.groups[place / kNewsGroup], uint8_t{1}, __ATOMIC_RELEASE);
}

// The owner's side: clears the marks of a group and calls found(place) for each that was set. A
// producer stores entry, mark, group; the owner clears group, then mark, with a fence before each
// further load. So either the owner sees the entry, or a mark remains that was set after it was
// cleared. Marks are bytes and stored, not exchanged: adjacent marks are not lost, and neither side
// waits for the other's cache line.
template <class Found>
void take_news(CqBell& bell, uint32_t group, Found found) {
  __atomic_store_n(&bell.groups[group], uint8_t{0}, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint8_t* const news = &bell.news[size_t{group} * kNewsGroup];
  uint64_t marked = 0;
  for (uint32_t i = 0; i < kNewsGroup; i += 8) {
    for (uint64_t marks = eight_of(news + i); marks != 0; marks &= marks - 1) {
      const uint32_t each = i + static_cast<uint32_t>(std::countr_zero(marks)) / 8;
      __atomic_store_n(&news[each], uint8_t{0}, __ATOMIC_RELAXED);
      marked |= uint64_t{1} << each;
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (; marked != 0; marked &= marked - 1)
    found(group * kNewsGroup + static_cast<uint32_t>(std::countr_zero(marked)));
}

// Whether any group has marks.
[[nodiscard]] inline bool has_news(const CqBell& bell) {
  uint64_t some = 0;
  for (uint32_t i = 0; i < kNewsGroups; i += 8) some |= eight_of(&bell.groups[i]);
  return some != 0;
}

// Calls found(place) for each mark, and leaves it.
template <class Found>
void look_at_news(const CqBell& bell, Found found) {
  if (!has_news(bell)) return;
  for (uint32_t group = 0; group < kNewsGroups; ++group) {
    if (__atomic_load_n(&bell.groups[group], __ATOMIC_ACQUIRE) == 0) continue;
    const uint32_t end = (group + 1) * kNewsGroup;
    for (uint32_t place = group * kNewsGroup; place < end; place += 8)
      for (uint64_t marks = eight_of(&bell.news[place]); marks != 0; marks &= marks - 1)
        found(place + static_cast<uint32_t>(std::countr_zero(marks)) / 8);
  }
}

// Makes `arm`, which must still be the CQ's, kTelling by `teller`, writes the CQ's `slot` to its
// channel at `write_end`, and says that it is told. If there is no room, the event is asked for as
// before: whoever reads the channel's last message then looks for completions in CQs that are still
// armed (Channel::has_drained of the library).
void tell_instead(CqBell& bell, uint32_t arm, int write_end, uint32_t slot, uint32_t teller);

// Call after publishing: if the CQ is armed for this completion, disarms it and tells its channel.
// `teller`: see Arm.
inline void tell(CqBell& bell, int write_end, uint32_t slot, bool solicited, uint32_t teller) {
  // Pairs with the fence of ibv_req_notify_cq: either it sees the completion, or we see the arm.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t arm = bell.arm.load(std::memory_order_relaxed);
  if (!is_armed(arm) || (arm_in(arm) == Arm::kSolicited && !solicited)) return;
  tell_instead(bell, arm, write_end, slot, teller);
}

}  // namespace vrdma::ipc
