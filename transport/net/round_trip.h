// How long a peer takes to answer, and so after what silence something was probably lost.
//
// Source: RFC 6298; one measurement at a time, and none of a packet that was sent again (Karn).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/event_loop.h"
#include "core/wire/roce.h"

namespace vrdma::transport::net {

class RoundTrip {
 public:
  static constexpr base::Duration kLeast = std::chrono::microseconds(500);
  static constexpr base::Duration kMost = std::chrono::milliseconds(200);
  static constexpr base::Duration kUnknown = std::chrono::milliseconds(4);

  // A packet that asks for an answer was sent for the first time.
  void sent(uint32_t psn, base::TimePoint now) {
    if (measuring_) return;
    measuring_ = true;
    psn_ = psn;
    since_ = now;
  }
  // All before `psn` was answered.
  void answered(uint32_t psn, base::TimePoint now) {
    if (!measuring_ || wire::psn_distance(psn_, psn) <= 0) return;
    measuring_ = false;
    doubts_ = 0;
    const base::Duration sample = now - since_;
    if (smoothed_ == base::Duration(0)) {
      smoothed_ = sample;
      deviation_ = sample / 2;
      return;
    }
    const base::Duration error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    deviation_ = (3 * deviation_ + error) / 4;
    smoothed_ = (7 * smoothed_ + sample) / 8;
  }
  void disturbed() { measuring_ = false; }  // something is sent again
  // The answer after something was sent again may be a late one to what was sent before. So silence
  // lasts twice as long until there is a measurement (RFC 6298 5.5). Else a peer that takes longer
  // than silence() is never measured, and what is sent again takes its time too.
  void doubt() { doubts_ = std::min(doubts_ + 1, kMostDoubts); }

  // 0: not known yet.
  [[nodiscard]] base::Duration smoothed() const { return smoothed_; }
  // Silence that makes a loss likely.
  [[nodiscard]] base::Duration silence() const {
    const base::Duration known = smoothed_ == base::Duration(0)
                                     ? kUnknown
                                     : std::clamp(2 * smoothed_ + 4 * deviation_, kLeast, kMost);
    return std::min(known * (1 << doubts_), kMost);
  }

 private:
  static constexpr int kMostDoubts = 10;

  bool measuring_ = false;
  int doubts_ = 0;
  uint32_t psn_ = 0;
  base::TimePoint since_{};
  base::Duration smoothed_{0}, deviation_{0};
};

}  // namespace vrdma::transport::net
