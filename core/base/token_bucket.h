// A rate limit with bursts.
//
// A user that must never exceed the rate calls take() first and acts only on success. A user that
// learns the amount afterwards calls spend(), which may go into debt, and then waits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/event_loop.h"

namespace vrdma::base {

class TokenBucket {
 public:
  // `rate` in tokens per second, 0: unlimited. The bucket starts full.
  void set(uint64_t rate, uint64_t burst) {
    rate_ = static_cast<double>(rate);
    level_ = depth_ = static_cast<double>(std::max<uint64_t>(burst, 1));
  }
  // Keeps the level or the debt, as far as it fits.
  void change(TimePoint now, uint64_t rate, uint64_t burst) {
    if (rate_ == 0) return set(rate, burst);
    fill(now);
    rate_ = static_cast<double>(rate);
    depth_ = static_cast<double>(std::max<uint64_t>(burst, 1));
    level_ = std::min(level_, depth_);
  }

  // False if there are fewer tokens; then takes none.
  [[nodiscard]] bool take(TimePoint now, uint64_t amount = 1) {
    if (rate_ == 0) return true;
    fill(now);
    if (level_ + kRounding < static_cast<double>(amount)) return false;
    level_ -= static_cast<double>(amount);
    return true;
  }

  void spend(TimePoint now, uint64_t amount) {
    if (rate_ == 0) return;
    fill(now);
    level_ -= static_cast<double>(amount);
  }
  // Time until tokens may be spent again; zero: now. An empty bucket fills for at least half a
  // millisecond, so that a user is not woken for each single token.
  [[nodiscard]] Duration wait(TimePoint now) {
    if (rate_ == 0) return Duration(0);
    fill(now);
    if (level_ > 0) return Duration(0);
    const double wanted = std::min(depth_, std::max(rate_ / 2000, 1e-6));
    return Duration(static_cast<int64_t>(std::min((wanted - level_) / rate_, kLongest) * 1e9) + 1);
  }

  // Tokens that were taken and are not replenished yet.
  [[nodiscard]] uint64_t used(TimePoint now) {
    if (rate_ == 0) return 0;
    fill(now);
    return static_cast<uint64_t>(std::ceil(depth_ - level_ - kRounding));
  }

  // When used() will be 0.
  [[nodiscard]] TimePoint full_at(TimePoint now) {
    if (rate_ == 0) return now;
    fill(now);
    return now +
           Duration(static_cast<int64_t>(std::min((depth_ - level_) / rate_, kLongest) * 1e9));
  }

 private:
  static constexpr double kLongest = 3600;  // seconds
  static constexpr double kRounding = 1e-6;

  void fill(TimePoint now) {
    const std::chrono::duration<double> passed = now - last_;
    last_ = std::max(last_, now);
    if (passed.count() > 0) level_ = std::min(depth_, level_ + passed.count() * rate_);
  }

  double rate_ = 0;
  double depth_ = 0;
  double level_ = 0;  // negative: debt
  TimePoint last_{};
};

}  // namespace vrdma::base
