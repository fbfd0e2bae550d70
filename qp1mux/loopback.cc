#include "qp1mux/loopback.h"

#include <algorithm>
#include <utility>

namespace vrdma::qp1mux {

Loopback::Loopback(std::function<void()> wake, Wire* network, size_t capacity)
    : wake_(std::move(wake)), network_(network), capacity_(capacity) {}

void Loopback::send(const Packet& packet) {
  if (mux_ == nullptr || !mux_->are_near(packet.fabric, packet.source, packet.destination)) {
    if (network_ != nullptr)
      network_->send(packet);
    else
      ++lost_;
    return;
  }
  if (count_ == ring_.size() && count_ < capacity_) {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(head_), ring_.end());
    head_ = 0;
    ring_.resize(std::min(capacity_, std::max<size_t>(64, 2 * count_)));
  }
  if (count_ == ring_.size()) {
    ++lost_;
    return;
  }
  ring_[(head_ + count_) % ring_.size()].keep(packet);
  if (count_++ == 0 && !delivering_) wake_();
}

void Loopback::deliver() {
  delivering_ = true;
  for (size_t left = count_; left > 0; --left) {
    std::swap(current_, ring_[head_]);  // its delivery may grow the ring
    head_ = (head_ + 1) % ring_.size();
    --count_;
    mux_->receive(current_.packet());
  }
  delivering_ = false;
  if (count_ > 0) wake_();
}

}  // namespace vrdma::qp1mux
