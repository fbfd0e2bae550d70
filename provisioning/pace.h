// The rate limit of one vdevice: bytes or messages per second.
//
// The effective rate is the lowest of the vdevice's own limit and its shares of the tenant's and
// the parent's capacity (shares.h). Use is known only afterwards, so it is spent on credit and then
// stops until the debt is paid: at most rate * (time + kBurst) plus the last piece over any time.
//
// Single-threaded, except what it shows.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/base/counter.h"
#include "core/base/token_bucket.h"
#include "provisioning/shares.h"

namespace vrdma::provisioning {

// How much of a rate may be used at once, so that a worker that is not scheduled for that long
// loses nothing.
constexpr auto kBurst = std::chrono::milliseconds(50);

// What a pace shows. The pace's thread writes it, any thread reads it.
struct RateUse {
  base::Counter spent;  // so far
  base::Counter waits;  // how often Pace::wait() returned a delay
  // The next three agree while `version` is even and does not change.
  std::atomic<uint64_t> version = 0;
  std::atomic<int64_t> measured = 0;      // nanoseconds of the clock
  std::atomic<uint64_t> counted = 0;      // since then
  std::atomic<uint64_t> rate_before = 0;  // per second

  RateUse() = default;
  // `from` may change meanwhile. If it never agrees with itself, the copy shows no rate.
  RateUse(const RateUse& from);
  RateUse& operator=(const RateUse&) = delete;
  ~RateUse() = default;

  // Use per second over about the last second. `more` was used and is not spent yet.
  [[nodiscard]] uint64_t rate(base::TimePoint now, uint64_t more = 0) const;

 private:
  friend class Pace;
  void measure(base::TimePoint now);
  void count(base::TimePoint now, uint64_t amount);
};

class Pace {
 public:
  explicit Pace(std::shared_ptr<RateUse> shown = std::make_shared<RateUse>())
      : shown_(std::move(shown)) {}
  void join(Shares& shares) { members_.push_back(shares.join()); }
  // `most` is the vdevice's own limit; kUnbounded for none.
  void set(base::TimePoint now, uint64_t least, uint64_t most);

  // Time until more may be used; zero: now.
  [[nodiscard]] base::Duration wait(base::TimePoint now);
  void spend(base::TimePoint now, uint64_t amount);

  [[nodiscard]] const RateUse& use() const { return *shown_; }

 private:
  void ask(base::TimePoint now);

  uint64_t most_ = kUnbounded;
  base::TokenBucket bucket_;
  std::vector<Shares::Member> members_;
  size_t narrowest_ = 0;  // the lowest share's index in members_; their number if most_ is lowest
  base::TimePoint asked_{};
  uint64_t used_ = 0;  // since asked_
  bool eager_ = false;
  const std::shared_ptr<RateUse> shown_;
};

}  // namespace vrdma::provisioning
