// Looking once more, for a moment, before going to sleep.
//
// To wake a thread takes microseconds, and tens of them on a processor that has gone idle. Whoever
// has just had work, or has just asked for something, most likely has the next of it sooner than
// that. Between two looks the processor is offered to others (sched_yield(2)). If somebody takes it
// for long, processors are scarce: then a thread that sleeps is run sooner, because it is woken,
// than one that has only stepped aside, and for a while no thread of this process lingers.
//
// Each is for one thread at a time.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

namespace vrdma::base {

class Linger {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Linger(std::chrono::nanoseconds patience) : patience_(patience) {}

  // There was something, or is about to be.
  void begin(Clock::time_point now = Clock::now()) { since_ = now; }

  // There was nothing. False: it is time to sleep.
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
