// How fast one vdevice may use something that is counted a second: bytes, messages.
//
// It has a most of its own, and a part in what its tenant and its parent have (shares.h); the least
// of these counts. What is used is known when it has been used, so it is spent afterwards, if need
// be on credit, and then nothing more until that is paid: over any time, no more than
// rate * (time + kBurst) and the last piece.
//
// Belongs to one thread.
#pragma once

#include <vector>

#include "core/base/token_bucket.h"
#include "provisioning/shares.h"

namespace vrdma::provisioning {

// Of a rate, what may be used at once: a worker that is kept from running for that long loses
// nothing.
constexpr auto kBurst = std::chrono::milliseconds(50);

class Pace {
 public:
  void join(Shares& shares) { members_.push_back(shares.join()); }
  // kUnbounded as the most: no limit of its own.
  void set(base::TimePoint now, uint64_t least, uint64_t most);

  // Until something may be used; zero: now.
  [[nodiscard]] base::Duration wait(base::TimePoint now);
  void spend(base::TimePoint now, uint64_t amount);

  // Used a second, over about the last one.
  [[nodiscard]] uint64_t rate(base::TimePoint now);
  [[nodiscard]] uint64_t spent() const { return spent_; }
  // How often somebody was told to wait.
  [[nodiscard]] uint64_t waits() const { return waits_; }

 private:
  void ask(base::TimePoint now);
  void measure(base::TimePoint now);

  uint64_t most_ = kUnbounded;
  base::TokenBucket bucket_;
  std::vector<Shares::Member> members_;
  size_t narrowest_ = 0;  // of members_; or none of them, but most_
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
