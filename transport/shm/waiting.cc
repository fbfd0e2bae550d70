#include "transport/shm/waiting.h"

#include <utility>

#include "core/wire/roce.h"

namespace vrdma::transport {

namespace {

constexpr uint8_t kRnrForEver = 7;

}  // namespace

Waiting::Verdict Waiting::for_receive(std::list<rdma::Sender*>& waiters, ipc::Word& word,
                                      uint8_t min_rnr_timer) {
  if (std::exchange(timer_expired_, false)) {
    if (rnr_left_ == 0) return Verdict::kGiveUp;
    --*rnr_left_;
  }
  const uint8_t retries = qp_.attributes.rnr_retry;
  if (retries != kRnrForEver && !rnr_left_) {
    if (retries == 0) return Verdict::kGiveUp;
    rnr_left_ = static_cast<uint8_t>(retries - 1);
  }
  if (waiters_ == nullptr) {
    waiters_ = &waiters;
    word_ = &word;
    waiters_->push_back(&sender_);
    word_->store(1, std::memory_order_relaxed);
    // Pairs with AsymmetricFence::light of ibv_post_recv: it sees the waiter, or we its receive.
    registered_ = lane_.loop().now();
    fenced_ = lane_.fence_since(registered_);
    return Verdict::kLook;
  }
  if (!fenced_ && !recheck_.active()) {
    // Until there may be a fence again, a receive that was just posted could be missed.
    recheck_ = lane_.loop().after(lane_.fence_interval(), [this] {
      recheck_.reset();
      if (waiters_ == nullptr) return;
      fenced_ = lane_.fence_since(registered_);
      sender_.resume();
    });
  }
  if (rnr_left_ && !timer_.active())
    start_timer(std::chrono::microseconds(wire::rnr_timer_us(min_rnr_timer)));
  return Verdict::kWait;
}

Waiting::Verdict Waiting::for_link() {
  if (timer_expired_) return Verdict::kGiveUp;
  const uint64_t timeout = wire::ack_timeout_ns(qp_.attributes.timeout);
  if (timeout != 0 && !timer_.active())
    start_timer(std::chrono::duration_cast<base::Duration>(std::chrono::nanoseconds(timeout) *
                                                           (qp_.attributes.retry_cnt + 1)));
  return Verdict::kWait;
}

void Waiting::start_timer(base::Duration delay) {
  timer_ = lane_.loop().after(delay, [this] {
    timer_.reset();
    timer_expired_ = true;
    sender_.resume();
  });
}

void Waiting::unregister() {
  if (waiters_ == nullptr) return;
  waiters_->remove(&sender_);
  if (waiters_->empty()) word_->store(0);
  waiters_ = nullptr;
  recheck_.reset();
}

void Waiting::forget() {
  unregister();
  timer_.reset();
  timer_expired_ = false;
  rnr_left_.reset();
}

}  // namespace vrdma::transport
