// Processor time: what a thread has used, who pays for it, and when they may use more.
#pragma once

#include "core/base/event_loop.h"

namespace vrdma::base {

// What the calling thread has used since it began. A system call.
[[nodiscard]] Duration thread_cpu_time();

// Who pays for processor time. All calls are thread-safe.
class CpuMeter {
 public:
  virtual ~CpuMeter() = default;
  virtual void spend(Duration used) = 0;
  // Until more may be used; zero: now. To be asked again then, for it may have become longer.
  [[nodiscard]] virtual Duration wait(TimePoint now) = 0;
};

// How much processor time stretches of a thread's work took, hardly ever asking the kernel: a short
// stretch took as long as the clock says. In a long one other threads may have had the processor,
// and it took no more than the thread has used since it was last asked, without the short ones
// since.
//
// Belongs to one thread.
class CpuStopwatch {
 public:
  using Used = Duration (*)();
  explicit CpuStopwatch(Used asked = &thread_cpu_time) : thread_used_(asked) {}

  // Before some stretches, now and then.
  void look(TimePoint now);
  [[nodiscard]] Duration used(TimePoint begun, TimePoint now);

 private:
  static constexpr auto kLook = std::chrono::milliseconds(1);
  static constexpr auto kLong = std::chrono::microseconds(100);

  Used thread_used_;
  TimePoint looked_{};
  Duration at_look_{};  // what the thread had used
  Duration since_{};    // of it in short stretches since
};

}  // namespace vrdma::base
