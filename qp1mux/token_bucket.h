// So many a second, and so many at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/event_loop.h"

namespace vrdma::qp1mux {

class TokenBucket {
 public:
  // `rate` in tokens a second, 0 = without limit. It begins full.
  void set(uint32_t rate, uint32_t burst) {
    price_ = rate == 0 ? 0 : 1'000'000'000 / std::min(rate, 1'000'000'000u);
    depth_ = price_ * std::max(burst, 1u);
    level_ = depth_;
  }
  // False, and nothing taken, if it is empty.
  bool take(base::TimePoint now) {
    if (price_ == 0) return true;
    fill(now);
    if (level_ < price_) return false;
    level_ -= price_;
    return true;
  }

  // Tokens that were taken and are not back yet.
  [[nodiscard]] uint32_t used(base::TimePoint now) {
    if (price_ == 0) return 0;
    fill(now);
    return static_cast<uint32_t>((depth_ - level_ + price_ - 1) / price_);
  }

 private:
  void fill(base::TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
    last_ = now;
    if (passed > 0)
      level_ = static_cast<uint64_t>(passed) >= depth_ - level_
                   ? depth_
                   : level_ + static_cast<uint64_t>(passed);
  }

  uint64_t price_ = 0;  // nanoseconds a token
  uint64_t depth_ = 0;
  uint64_t level_ = 0;
  base::TimePoint last_{};
};

}  // namespace vrdma::qp1mux
