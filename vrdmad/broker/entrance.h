// How fast connections to one listening socket are accepted, and how many of them nobody serves
// yet.
//
// Those for which it is closed wait in the listener's queue, where they are their own process's: it
// holds so many, and then connect(2) waits too. So who connects without end delays nobody but those
// who connect to the same vdevice.
//
// Belongs to the control thread, but for Waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "core/base/token_bucket.h"

namespace vrdma::vrdmad {

class Entrance {
 public:
  // Accepted connections that the worker has not begun to serve.
  static constexpr unsigned kMostWaiting = 64;

  // A connection that waits, until it is destroyed. Any thread.
  class Waiting {
   public:
    explicit Waiting(std::shared_ptr<Entrance> at) : at_(std::move(at)) {
      if (at_ != nullptr) ++at_->waiting_;
    }
    ~Waiting() {
      if (at_ != nullptr) --at_->waiting_;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    const std::shared_ptr<Entrance> at_;
  };

  // Connections a second, and as many at once; 0: any number.
  void set_rate(base::TimePoint now, uint64_t rate) { bucket_.change(now, rate, rate); }
  // Until the next connection may be accepted; zero: now.
  [[nodiscard]] base::Duration closed_for(base::TimePoint now) {
    const base::Duration wait = bucket_.wait(now);
    if (wait.count() > 0) {
      ++closed_;
      return wait;
    }
    return waiting_ < kMostWaiting ? base::Duration(0)
                                   : base::Duration(std::chrono::milliseconds(1));
  }
  void entered(base::TimePoint now) { bucket_.spend(now, 1); }
  // In about the last second; of a rate that is limited.
  [[nodiscard]] uint64_t used(base::TimePoint now) { return bucket_.used(now); }
  // How often somebody found it closed by its rate.
  [[nodiscard]] uint64_t closed() const { return closed_; }

 private:
  base::TokenBucket bucket_;
  uint64_t closed_ = 0;
  std::atomic<unsigned> waiting_ = 0;
};

}  // namespace vrdma::vrdmad
