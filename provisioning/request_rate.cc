#include "provisioning/request_rate.h"

#include <cmath>

namespace vrdma::provisioning {

void RequestRate::set(uint64_t rate) {
  const base::TimePoint now = loop_.now();
  bucket_.change(now, rate, rate);
  show(now);
  if (!line_.empty()) wake_in(bucket_.wait(now));
}

bool RequestRate::admits(Reader& reader) {
  if (reader.in_line_) return false;
  if (reader.paid_) return true;
  const base::TimePoint now = loop_.now();
  const base::Duration wait = bucket_.wait(now);
  if (line_.empty() && wait.count() == 0) {
    spend_one(now);
    return reader.paid_ = true;
  }
  ++shown_->waited;
  reader.place_ = line_.insert(line_.end(), &reader);
  reader.in_line_ = true;
  if (!timer_.active()) wake_in(wait);
  return false;
}

void RequestRate::leave(Reader& reader) {
  if (!reader.in_line_) return;
  line_.erase(reader.place_);
  reader.in_line_ = false;
  if (line_.empty()) timer_.reset();
}

uint64_t RequestUse::used(base::TimePoint now, uint64_t rate) const {
  const auto left = static_cast<int64_t>(full_at.get()) - now.time_since_epoch().count();
  const double tokens = static_cast<double>(left) * static_cast<double>(rate) / 1e9;
  constexpr double kRounding = 1e-3;
  return tokens > kRounding ? static_cast<uint64_t>(std::ceil(tokens - kRounding)) : 0;
}

void RequestRate::show(base::TimePoint now) {
  const base::TimePoint full = bucket_.full_at(now);
  shown_->full_at = static_cast<uint64_t>(full.time_since_epoch().count());
}

void RequestRate::spend_one(base::TimePoint now) {
  bucket_.spend(now, 1);
  show(now);
}

void RequestRate::wake_in(base::Duration delay) {
  timer_ = loop_.after(delay, [this] { call_next(); });
}

void RequestRate::call_next() {
  const base::TimePoint now = loop_.now();
  while (!line_.empty() && bucket_.wait(now).count() == 0) {
    spend_one(now);
    Reader& next = *line_.front();
    line_.pop_front();
    next.in_line_ = false;
    next.paid_ = true;
    next.admitted();
  }
  if (line_.empty())
    timer_.reset();
  else
    wake_in(bucket_.wait(now));
}

}  // namespace vrdma::provisioning
