#include "provisioning/request_rate.h"

namespace vrdma::provisioning {

void RequestRate::set(uint64_t rate) {
  const base::TimePoint now = base::EventLoop::now();
  bucket_.change(now, rate, rate);
  if (!line_.empty()) wake_in(bucket_.wait(now));
}

bool RequestRate::admits(Reader& reader) {
  if (reader.in_line_) return false;
  if (reader.paid_) return true;
  const base::TimePoint now = base::EventLoop::now();
  const base::Duration wait = bucket_.wait(now);
  if (line_.empty() && wait.count() == 0) {
    bucket_.spend(now, 1);
    return reader.paid_ = true;
  }
  ++waited_;
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

uint64_t RequestRate::used() { return bucket_.used(base::EventLoop::now()); }

void RequestRate::wake_in(base::Duration delay) {
  timer_ = loop_.after(delay, [this] { call_next(); });
}

void RequestRate::call_next() {
  const base::TimePoint now = base::EventLoop::now();
  while (!line_.empty() && bucket_.wait(now).count() == 0) {
    bucket_.spend(now, 1);
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
