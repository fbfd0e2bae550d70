// How fast a connected queue pair sends when the network is congested.
//
// Routers mark packets before they drop them (ECN; the packets of connected queue pairs permit it,
// ECT(0)). The receiver of a marked packet tells its peer by a congestion notification packet
// (CNP), at most one in kCnpInterval. The sender then lowers its rate, and raises it again while no
// CNP comes: this is DCQCN, which adapters use, with its names:
//
//   * A cut, at most one in a period: the target rate is what the rate was, the rate is lowered by
//     alpha / 2 of itself, and alpha grows towards 1. So one mark after a long time costs half of
//     the rate at most, and constant marking as much again each period.
//   * Each period without a CNP, alpha shrinks, and the rate grows: kFastRecovery times half of the
//     way to the target; then the target rises too, by kAdditive, and after as many periods by
//     kHyper.
//   * A second without a CNP: there is no limit any more.
//
// It differs from the paper in two things. The first cut begins from the rate that was measured,
// because the rate of a virtual link is not known. A period is a millisecond instead of 55 us,
// because the processes that send and answer may have to wait that long for the processor.
//
// Within the rate, packets leave in bursts of what a period permits. A lost packet is not taken for
// congestion here: the requester's window shrinks then (requester.h).
//
// Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, section 3;
// IBTA annex A17.9.3 (CNP); RFC 3168.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "core/base/event_loop.h"

namespace vrdma::transport::net {

class Congestion {
 public:
  static constexpr base::Duration kCnpInterval = std::chrono::microseconds(50);
  static constexpr base::Duration kPeriod = std::chrono::milliseconds(1);
  static constexpr base::Duration kForgotten = std::chrono::seconds(1);
  static constexpr double kLeastRate = 1e6;  // bytes per second, as all rates
  static constexpr double kAdditive = 5e6, kHyper = 50e6;
  static constexpr int kFastRecovery = 5;
  static constexpr double kGain = 1.0 / 16;  // of alpha

  // A CNP came.
  void notified(base::TimePoint now) {
    pass_time(now);
    notified_at_ = now;
    if (rate_ != 0 && now - cut_at_ < kPeriod) return;
    if (rate_ == 0) {
      rate_ = std::max(measured(now), kLeastRate);
      alpha_ = 1;
      free_at_ = now;
    }
    target_ = rate_;
    rate_ = std::max(rate_ * (1 - alpha_ / 2), kLeastRate);
    alpha_ = (1 - kGain) * alpha_ + kGain;
    stage_ = 0;
    cut_at_ = grown_at_ = now;
  }
  // Bytes went out.
  void sent(uint64_t bytes, base::TimePoint now) {
    if (now - metered_since_ >= kMetered) {
      const base::Duration span = now - metered_since_;
      last_metered_ = span < 2 * kMetered ? rate_of(metered_, span) : 0;
      metered_ = 0;
      metered_since_ = now;
    }
    metered_ += bytes;
    if (rate_ == 0) return;
    const auto takes =
        std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / rate_));
    free_at_ = std::max(free_at_, now) + takes;
  }
  // Whether something may be sent now; else free_at() says when.
  [[nodiscard]] bool may_send(base::TimePoint now) {
    pass_time(now);
    return rate_ == 0 || free_at_ <= now;
  }
  [[nodiscard]] base::TimePoint free_at() const { return free_at_; }
  // Bytes per second; 0: there is no limit.
  [[nodiscard]] double rate() const { return rate_; }
  // The most packets that go out at once.
  [[nodiscard]] uint32_t burst(uint32_t mtu, uint32_t most) const {
    if (rate_ == 0) return most;
    constexpr double kPeriodsPerSecond = std::chrono::duration<double>(std::chrono::seconds(1)) /
                                         std::chrono::duration<double>(kPeriod);
    return std::clamp(static_cast<uint32_t>(std::min(rate_ / kPeriodsPerSecond / mtu, 1e6)), 1u,
                      most);
  }

 private:
  static constexpr base::Duration kMetered = std::chrono::milliseconds(10);

  static double rate_of(uint64_t bytes, base::Duration span) {
    return static_cast<double>(bytes) / std::chrono::duration<double>(span).count();
  }
  [[nodiscard]] double measured(base::TimePoint now) const {
    const base::Duration span = std::max<base::Duration>(now - metered_since_, kPeriod);
    return std::max(span < 2 * kMetered ? rate_of(metered_, span) : 0, last_metered_);
  }
  void pass_time(base::TimePoint now) {
    if (rate_ == 0) return;
    if (now - notified_at_ >= kForgotten) {
      rate_ = 0;
      return;
    }
    for (; now - grown_at_ >= kPeriod; grown_at_ += kPeriod) {
      alpha_ *= 1 - kGain;
      if (++stage_ > 2 * kFastRecovery)
        target_ += kHyper;
      else if (stage_ > kFastRecovery)
        target_ += kAdditive;
      rate_ = (rate_ + target_) / 2;
    }
  }

  double rate_ = 0, target_ = 0, alpha_ = 1;
  int stage_ = 0;
  base::TimePoint notified_at_{}, cut_at_{}, grown_at_{}, free_at_{};
  uint64_t metered_ = 0;
  double last_metered_ = 0;
  base::TimePoint metered_since_{};
};

}  // namespace vrdma::transport::net
