// Runs an event loop until what a test waits for has happened.
#pragma once

#include <chrono>
#include <functional>

#include "core/base/event_loop.h"

namespace vrdma::test {

// Runs `loop` until `condition` holds; false if it does not within `limit`.
inline bool run_until(base::EventLoop& loop, const std::function<bool()>& condition,
                      std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto end = base::Clock::steady().now() + limit;
  bool holds = false;
  base::EventLoop::Timer timer;
  std::function<void()> look = [&] {
    holds = condition();
    if (holds || base::Clock::steady().now() >= end) return loop.stop();
    timer = loop.after(std::chrono::microseconds(200), look);
  };
  timer = loop.after(base::Duration(0), look);
  loop.run();
  return holds;
}

}  // namespace vrdma::test
