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
  if (now - looked_ >= kLook) (void)query(now);
}

Duration CpuStopwatch::used(TimePoint begun, TimePoint now) {
  Duration used = now - begun;
  if (used <= kLong) {
    since_ += used;
  } else {
    used = std::min(used, query(now));
  }
  const Duration returned = std::min(used, excess_);
  excess_ -= returned;
  return used - returned;
}

Duration CpuStopwatch::query(TimePoint now) {
  const Duration counted = at_query_ + since_;
  looked_ = now;
  at_query_ = thread_used_();
  since_ = Duration(0);
  const Duration rest = at_query_ - counted;
  if (rest < Duration(0)) excess_ -= rest;
  return std::max(rest, Duration(0));
}

}  // namespace vrdma::base
