#include "vrdmad/worker/cpu_pace.h"

#include <algorithm>
#include <utility>

namespace vrdma::vrdmad {

using provisioning::kCpuPercent;
using provisioning::Kind;

CpuPace::CpuPace(const Rates& rates, std::shared_ptr<Shown> shown)
    : shown_(std::move(shown)), settled_(shown_->total), pace_({shown_, &shown_->rate}) {
  for (const auto& shares : rates.cpu) pace_.join(*shares);
}

void CpuPace::set(uint64_t percent) {
  const std::lock_guard lock(mutex_);
  const bool limited = percent != provisioning::traits(Kind::kCpu).ceiling;
  pace_.set(base::Clock::steady().now(), 0,
            limited ? percent * kCpuPercent : provisioning::kUnbounded);
}

void CpuPace::settle(base::TimePoint now) {
  const int64_t total = shown_->total.load(std::memory_order_relaxed);
  const int64_t more = total - std::exchange(settled_, total);
  if (more > 0) pace_.spend(now, static_cast<uint64_t>(more));
}

uint64_t CpuPace::Shown::percent(base::TimePoint now) const {
  const provisioning::RateUse settled(rate);
  const int64_t all = total.load(std::memory_order_relaxed);
  const auto more = std::max<int64_t>(all - static_cast<int64_t>(settled.spent), 0);
  return (settled.rate(now, static_cast<uint64_t>(more)) + kCpuPercent / 2) / kCpuPercent;
}

void CpuPace::spend(base::Duration used) {
  shown_->total.fetch_add(std::max<int64_t>(used.count(), 0), std::memory_order_relaxed);
}

base::Duration CpuPace::wait(base::TimePoint now) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return base::Duration(0);
  settle(now);
  const base::Duration wait = pace_.wait(now);
  return wait.count() == 0 ? wait : std::max<base::Duration>(wait, kCpuRest);
}

}  // namespace vrdma::vrdmad
