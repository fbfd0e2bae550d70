#include "vrdmad/pacer.h"

#include <algorithm>

namespace vrdma::vrdmad {

using provisioning::Kind;

Pacer::Pacer(base::EventLoop& loop, const Rates& rates) : loop_(loop) {
  for (const auto& shares : rates.bandwidth) bytes_.join(*shares);
  for (const auto& shares : rates.messages) messages_.join(*shares);
}

void Pacer::set(const provisioning::Limits& limits) {
  const auto most = [&](Kind kind) {
    const uint64_t limit = of(limits, kind);
    return limit == provisioning::traits(kind).ceiling ? provisioning::kUnbounded : limit;
  };
  const auto now = base::EventLoop::now();
  bytes_.set(now, of(limits, Kind::kBandwidthMin), most(Kind::kBandwidth));
  messages_.set(now, 0, most(Kind::kMsgRate));
  if (!line_.empty()) wake_in(base::Duration(0));
}

void Pacer::dismiss() {
  timer_.reset();
  called_ = nullptr;
  places_.clear();
  for (rdma::Sender* sender : std::exchange(line_, {})) sender->kick();
}

void Pacer::report(std::vector<provisioning::Row>& rows) {
  const auto now = base::EventLoop::now();
  for (auto& row : rows) {
    if (row.kind != Kind::kBandwidth && row.kind != Kind::kMsgRate) continue;
    auto& pace = row.kind == Kind::kBandwidth ? bytes_ : messages_;
    row.used = pace.rate(now);
    row.refused = pace.waits();
  }
}

base::Duration Pacer::wait() {
  const auto now = base::EventLoop::now();
  return std::max(bytes_.wait(now), messages_.wait(now));
}

bool Pacer::admit(rdma::Sender& sender) {
  if (places_.contains(&sender)) return false;
  base::Duration delay(0);
  if (line_.empty() || called_ == &sender) {
    delay = wait();
    if (delay.count() == 0) return true;
  }
  places_.emplace(&sender, line_.insert(line_.end(), &sender));
  if (!timer_.active()) wake_in(delay);
  return false;
}

void Pacer::spend(uint64_t bytes, uint64_t messages) {
  const auto now = base::EventLoop::now();
  if (bytes > 0) bytes_.spend(now, bytes);
  if (messages > 0) messages_.spend(now, messages);
}

void Pacer::leave(rdma::Sender& sender) {
  if (called_ == &sender) called_ = nullptr;
  const auto place = places_.find(&sender);
  if (place == places_.end()) return;
  line_.erase(place->second);
  places_.erase(place);
  if (line_.empty()) timer_.reset();
}

void Pacer::wake_in(base::Duration delay) {
  timer_ = loop_.after(delay, [this] {
    timer_.reset();
    call_next();
  });
}

// The next one is called after this one has had its turn, which is before the loop comes back here.
void Pacer::call_next() {
  called_ = nullptr;
  if (line_.empty()) return;
  const base::Duration delay = wait();
  if (delay.count() > 0) return wake_in(delay);
  called_ = line_.front();
  line_.pop_front();
  places_.erase(called_);
  if (!line_.empty()) wake_in(base::Duration(0));
  called_->kick();
}

}  // namespace vrdma::vrdmad
