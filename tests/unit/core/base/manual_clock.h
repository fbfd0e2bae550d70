// A clock that only the test moves, and the passes of a loop that goes by it.
#pragma once

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/event_loop.h"

namespace vrdma::test {

class ManualClock final : public base::Clock {
 public:
  [[nodiscard]] base::TimePoint now() const override { return now_; }
  void advance(base::Duration by) { now_ += by; }

  // Runs `loop`, whose clock this is, for as much of its time: whatever is ready, and each timer
  // when it is due.
  void run(base::EventLoop& loop, base::Duration time) {
    const base::TimePoint end = now() + time;
    for (;;) {
      while (loop.step()) {
      }
      const auto next = loop.next_timer();
      if (!next || *next > end) break;
      now_ = std::max(now_, *next);
    }
    now_ = end;
    while (loop.step()) {
    }
  }

 private:
  base::TimePoint now_{std::chrono::hours(1)};
};

}  // namespace vrdma::test
