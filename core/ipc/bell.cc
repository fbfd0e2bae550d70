#include "core/ipc/bell.h"

#include <poll.h>

namespace vrdma::ipc {

namespace {

// Writable is a socket of which at most a quarter is in use: less than when there was no room.
bool is_writable(int write_end) {
  pollfd room{write_end, POLLOUT, 0};
  return ::poll(&room, 1, 0) == 1 && room.revents == POLLOUT;
}

}  // namespace

void tell_instead(CqBell& bell, uint32_t arm, int write_end, uint32_t slot, uint32_t teller) {
  constexpr int kAttempts = 8;  // each failure is another one's success
  const uint32_t telling = arm_word(Arm::kTelling, teller);
  const ChannelMessage message{slot, 0};
  for (int i = 0; i < kAttempts; ++i) {
    if (!bell.arm.compare_exchange_strong(arm, telling)) return;
    const bool told = put_event(write_end, &message, sizeof message);
    arm = telling;
    const uint32_t then = arm_word(told ? Arm::kNone : Arm::kNext);
    if (!bell.arm.compare_exchange_strong(arm, then) || told) return;  // or the owner asked again
    // If it is not writable, there are messages that were not read when the arm became kNext. Else
    // perhaps nobody reads any more.
    if (!is_writable(write_end)) return;
    arm = then;
  }
}

}  // namespace vrdma::ipc
