#include "core/rdma/line.h"

#include <utility>

#include "core/rdma/device.h"

namespace vrdma::rdma {

bool Line::admit(Sender& sender) {
  base::Duration delay(0);
  if (line_.empty() || called_ == &sender) {
    delay = wait_();
    if (delay.count() == 0) return true;
  }
  if (places_.contains(&sender)) return false;
  places_.emplace(&sender, line_.insert(line_.end(), &sender));
  if (!timer_.active()) wake_in(delay);
  return false;
}

void Line::leave(Sender& sender) {
  if (called_ == &sender) called_ = nullptr;
  if (line_.empty()) return;
  const auto place = places_.find(&sender);
  if (place == places_.end()) return;
  line_.erase(place->second);
  places_.erase(place);
  if (line_.empty()) timer_.reset();
}

void Line::look_again() {
  if (!line_.empty()) wake_in(base::Duration(0));
}

void Line::dismiss() {
  timer_.reset();
  called_ = nullptr;
  places_.clear();
  for (Sender* sender : std::exchange(line_, {})) sender->called();
}

void Line::wake_in(base::Duration delay) {
  timer_ = loop_.after(delay, [this] {
    timer_.reset();
    call_next();
  });
}

// The next one is called after this one has had its turn, which is before the loop comes back here.
void Line::call_next() {
  called_ = nullptr;
  if (line_.empty()) return;
  const base::Duration delay = wait_();
  if (delay.count() > 0) return wake_in(delay);
  called_ = line_.front();
  line_.pop_front();
  places_.erase(called_);
  if (!line_.empty()) wake_in(base::Duration(0));
  called_->called();
}

}  // namespace vrdma::rdma
