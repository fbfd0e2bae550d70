// The rate limit of one vdevice: bytes or messages per second.
//
// The effective rate is the lowest of the vdevice's own limit and its shares of the tenant's and
// the parent's capacity (shares.h). Use is known only afterwards, so it is spent on credit and then
// stops until the debt is paid: at most rate * (time + kBurst) plus the last piece over any time.
//
// Single-threaded.
#pragma once

#include <vector>

#include "core/base/token_bucket.h"
#include "provisioning/shares.h"

namespace vrdma::provisioning {

// How much of a rate may be used at once, so that a worker that is not scheduled for that long
// loses nothing.
constexpr auto kBurst = std::chrono::milliseconds(50);

class Pace {
 public:
  void join(Shares& shares) { members_.push_back(shares.join()); }
  // `most` is the vdevice's own limit; kUnbounded for none.
  void set(base::TimePoint now, uint64_t least, uint64_t most);

  // Time until more may be used; zero: now.
  [[nodiscard]] base::Duration wait(base::TimePoint now);
  void spend(base::TimePoint now, uint64_t amount);

  // Use per second over about the last second.
  [[nodiscard]] uint64_t rate(base::TimePoint now);
  [[nodiscard]] uint64_t spent() const { return spent_; }
  // How often wait() returned a delay.
  [[nodiscard]] uint64_t waits() const { return waits_; }

 private:
  void ask(base::TimePoint now);
  void measure(base::TimePoint now);

  uint64_t most_ = kUnbounded;
  base::TokenBucket bucket_;
  std::vector<Shares::Member> members_;
  size_t narrowest_ = 0;  // the lowest share's index in members_; their number if most_ is lowest
  base::TimePoint asked_{};
  uint64_t used_ = 0;  // since asked_
  bool eager_ = false;
  uint64_t waits_ = 0;
  uint64_t spent_ = 0;

  base::TimePoint measured_{};
  uint64_t counted_ = 0;  // since measured_
  uint64_t rate_ = 0;
};

}  // namespace vrdma::provisioning
