// Polling once more for a moment before sleeping.
//
// Waking a thread takes microseconds, and tens of them on an idle processor. A thread that has just
// had work, or has just sent a request, most likely gets its next work sooner. Between two polls it
// offers the processor to other threads (sched_yield(2)). If it gets the processor back late,
// processors are scarce. The scheduler then runs a woken thread sooner than one that has yielded,
// so for a while no thread of this process lingers.
//
// Each Linger is for one thread at a time.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

namespace vrdma::base {

class Linger {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Linger(std::chrono::nanoseconds patience) : patience_(patience) {}

  // There was work, or there will be soon.
  void begin(Clock::time_point now = Clock::now()) { since_ = now; }

  // There was no work. False: it is time to sleep.
  [[nodiscard]] bool again() {
    const Clock::time_point now = Clock::now();
    if (now - since_ >= patience_ || now < scarce_until_.load(std::memory_order_relaxed))
      return false;
    ::sched_yield();
    const Clock::time_point back = Clock::now();
    if (back - now > kLong) scarce_until_.store(back + kScarce, std::memory_order_relaxed);
    return true;
  }

 private:
  static constexpr std::chrono::microseconds kLong{200};
  static constexpr std::chrono::milliseconds kScarce{200};

  static inline std::atomic<Clock::time_point> scarce_until_{};

  std::chrono::nanoseconds patience_;
  Clock::time_point since_{};
};

}  // namespace vrdma::base
