#include "provisioning/pace.h"

#include <utility>

namespace vrdma::provisioning {

namespace {

constexpr auto kMeasure = std::chrono::seconds(1);

uint64_t burst_of(uint64_t rate) { return rate * static_cast<uint64_t>(kBurst.count()) / 1000; }

double seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Pace::set(base::TimePoint now, uint64_t least, uint64_t most) {
  most_ = most;
  for (auto& member : members_) member.set(least, most);
  bucket_.change(now, most, burst_of(most));
  asked_ = {};
}

// The lowest grant becomes the bucket's rate. Only the member that grants it is asked for more.
void Pace::ask(base::TimePoint now) {
  const double passed = seconds(now - asked_);
  const double used = passed > 0 ? static_cast<double>(used_) / passed : 0;
  const size_t bound_by = std::exchange(narrowest_, members_.size());
  uint64_t rate = most_;
  for (size_t i = 0; i < members_.size(); ++i) {
    const uint64_t granted = members_[i].ask(now, used, eager_ && i == bound_by);
    if (granted == kUnbounded || (rate != kUnbounded && granted >= rate)) continue;
    rate = granted;
    narrowest_ = i;
  }
  bucket_.change(now, rate, burst_of(rate));
  asked_ = now;
  used_ = 0;
  eager_ = false;
}

base::Duration Pace::wait(base::TimePoint now) {
  if (!members_.empty() && now - asked_ >= kPeriod) ask(now);
  base::Duration wait = bucket_.wait(now);
  if (wait.count() == 0) return wait;
  eager_ = true;
  ++waits_;
  // A share may grow in the next period.
  return members_.empty() ? wait : std::min<base::Duration>(wait, kPeriod);
}

void Pace::spend(base::TimePoint now, uint64_t amount) {
  bucket_.spend(now, amount);
  used_ += amount;
  spent_ += amount;
  measure(now);
  counted_ += amount;
}

void Pace::measure(base::TimePoint now) {
  const base::Duration passed = now - measured_;
  if (passed < kMeasure) return;
  rate_ = passed > 2 * kMeasure
              ? 0
              : static_cast<uint64_t>(static_cast<double>(counted_) / seconds(passed));
  measured_ = now;
  counted_ = 0;
}

uint64_t Pace::rate(base::TimePoint now) {
  measure(now);
  return rate_;
}

}  // namespace vrdma::provisioning
