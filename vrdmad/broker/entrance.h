// Limits the connection rate of one listening socket, and the number of accepted connections that
// no worker serves yet.
//
// Connections beyond the limits wait in the listen queue, charged to the connecting process; when
// the queue is full, connect(2) blocks. So a process that connects in a loop delays only clients of
// the same vdevice.
//
// Belongs to the control thread, except Waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "core/base/token_bucket.h"

namespace vrdma::vrdmad {

class Entrance {
 public:
  // Accepted connections that the worker does not serve yet.
  static constexpr unsigned kMostWaiting = 64;

  // Counts a connection as waiting until it is destroyed. Any thread.
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

  // Connections per second, and as many in a burst; 0: unlimited.
  void set_rate(base::TimePoint now, uint64_t rate) { bucket_.change(now, rate, rate); }
  // Time until the next connection may be accepted; zero: now.
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
  // Connections in about the last second; counted only under a limited rate.
  [[nodiscard]] uint64_t used(base::TimePoint now) { return bucket_.used(now); }
  // How often the rate was found exhausted.
  [[nodiscard]] uint64_t closed() const { return closed_; }

 private:
  base::TokenBucket bucket_;
  uint64_t closed_ = 0;
  std::atomic<unsigned> waiting_ = 0;
};

}  // namespace vrdma::vrdmad
