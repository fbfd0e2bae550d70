// The time that timers and decisions go by: the machine's (CLOCK_MONOTONIC), or that of a test,
// which stands still until the test moves it.
//
// Whoever decides by time takes it from the clock of its EventLoop. Only what waits for the machine
// itself, such as a thread that copies memory, takes it from Clock::steady().
#pragma once

#include <chrono>

namespace vrdma::base {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  [[nodiscard]] virtual TimePoint now() const = 0;

  // The machine's. Any thread, until the process has ended.
  [[nodiscard]] static const Clock& steady();

 protected:
  ~Clock() = default;  // trivial: statics that end later may still ask
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline const Clock& Clock::steady() {
  static constinit const SteadyClock clock;
  return clock;
}

}  // namespace vrdma::base
