#include "core/base/cpu_meter.h"

#include <algorithm>
#include <ctime>

namespace vrdma::base {

Duration thread_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void CpuStopwatch::look(TimePoint now) {
  if (now - looked_ < kLook) return;
  looked_ = now;
  at_look_ = thread_used_();
  since_ = Duration(0);
}

Duration CpuStopwatch::used(TimePoint begun, TimePoint now) {
  const Duration passed = now - begun;
  if (passed <= kLong) {
    since_ += passed;
    return passed;
  }
  const Duration had = at_look_ + since_;
  looked_ = now;
  at_look_ = thread_used_();
  since_ = Duration(0);
  return std::clamp(at_look_ - had, Duration(0), passed);
}

}  // namespace vrdma::base
