// Processor time: how much a thread used, which account pays, and when it may use more.
#pragma once

#include "core/base/event_loop.h"

namespace vrdma::base {

// Processor time of the calling thread since its start. A system call.
[[nodiscard]] Duration thread_cpu_time();

// An account that pays for processor time. All calls are thread-safe.
class CpuMeter {
 public:
  virtual ~CpuMeter() = default;
  virtual void spend(Duration used) = 0;
  // Time until more may be used; zero: now. Ask again then, because the wait may have grown.
  [[nodiscard]] virtual Duration wait(TimePoint now) = 0;
};

// Measures the processor time of stretches of a thread's work with few system calls. For a short
// stretch it uses the elapsed time. During a long one, other threads may have run, so it uses at
// most the thread's processor time since the last query, without the short stretches since then.
// Short stretches can be interrupted too. When a query shows that they were counted for more than
// the thread used, the next stretches are counted for less, so that the sum is never more than the
// thread's processor time and what was counted since the last query.
//
// Single-threaded.
class CpuStopwatch {
 public:
  using Used = Duration (*)();
  explicit CpuStopwatch(Used asked = &thread_cpu_time) : thread_used_(asked) {}

  // Queries the thread's processor time if the last query is old. Call before some stretches.
  void look(TimePoint now);
  [[nodiscard]] Duration used(TimePoint begun, TimePoint now);

 private:
  static constexpr auto kLook = std::chrono::milliseconds(1);
  static constexpr auto kLong = std::chrono::microseconds(100);

  // Returns the thread's processor time since the last query, without the short stretches.
  Duration query(TimePoint now);

  Used thread_used_;
  TimePoint looked_{};
  Duration at_query_{};  // processor time at the last query
  Duration since_{};     // short stretches since then
  Duration excess_{};    // counted, and not used
};

}  // namespace vrdma::base
