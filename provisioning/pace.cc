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
  ++shown_->waits;
  // A share may grow in the next period.
  return members_.empty() ? wait : std::min<base::Duration>(wait, kPeriod);
}

void Pace::spend(base::TimePoint now, uint64_t amount) {
  bucket_.spend(now, amount);
  used_ += amount;
  shown_->count(now, amount);
}

// A writer that dies, or is not scheduled, in the middle leaves an odd version; its reader must not
// wait for it. Then the three may not agree, and the copy shows no rate.
RateUse::RateUse(const RateUse& from) : spent(from.spent), waits(from.waits) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = from.version.load(std::memory_order_acquire);
    const int64_t at = from.measured.load(std::memory_order_acquire);
    const uint64_t since = from.counted.load(std::memory_order_acquire);
    const uint64_t last = from.rate_before.load(std::memory_order_acquire);
    if (before % 2 != 0 || from.version.load(std::memory_order_relaxed) != before) continue;
    measured = at;
    counted = since;
    rate_before = last;
    return;
  }
}

uint64_t RateUse::rate(base::TimePoint now, uint64_t more) const {
  const base::Duration passed = now.time_since_epoch() - base::Duration(measured.load());
  if (passed < kMeasure) return rate_before;
  if (passed > 2 * kMeasure) return 0;
  return static_cast<uint64_t>(static_cast<double>(counted + more) / seconds(passed));
}

void RateUse::measure(base::TimePoint now) {
  const base::Duration at = now.time_since_epoch();
  if (at - base::Duration(measured.load(std::memory_order_relaxed)) < kMeasure) return;
  const uint64_t last = rate(now);
  const uint64_t number = version.load(std::memory_order_relaxed);
  version.store(number + 1, std::memory_order_relaxed);
  measured.store(at.count(), std::memory_order_release);
  counted.store(0, std::memory_order_release);
  rate_before.store(last, std::memory_order_release);
  version.store(number + 2, std::memory_order_release);
}

void RateUse::count(base::TimePoint now, uint64_t amount) {
  measure(now);
  spent += amount;
  counted.store(counted.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace vrdma::provisioning
