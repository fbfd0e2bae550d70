#include "provisioning/claim.h"

#include <algorithm>

namespace vrdma::provisioning {

Claim::Claim(std::shared_ptr<BudgetPage> page, size_t slot, Rate rate, std::function<void()> ring)
    : page_(std::move(page)),
      slot_(page_->slots[slot]),
      rate_(static_cast<size_t>(rate)),
      ring_(std::move(ring)) {}

uint64_t Claim::whole() const { return page_->capacities[rate_].get(std::memory_order_relaxed); }

// Only the thread of the worker rings. A reach thread has no descriptor by which it could; it works
// on a request of that thread, which soon asks too.
uint64_t Claim::ask(base::TimePoint now, const Demand& demand) {
  const uint64_t most = std::max<uint64_t>(whole(), 1);
  auto& asked = slot_.asked[rate_];
  asked.used.set(static_cast<uint64_t>(std::clamp(demand.used, 0.0, 0x1p63)),
                 std::memory_order_relaxed);
  asked.eager.set(demand.eager ? 1 : 0, std::memory_order_relaxed);
  asked.members.set(demand.members, std::memory_order_relaxed);
  asked.most.set(demand.most, std::memory_order_relaxed);
  asked.at.set(nanoseconds(now), std::memory_order_release);
  const auto& granted = slot_.granted[rate_];
  const bool valid = granted.until.get(std::memory_order_acquire) > nanoseconds(now);
  if (!valid && now - rang_ >= kPeriod && std::this_thread::get_id() == thread_) {
    rang_ = now;
    ring_();
  }
  const auto& rate = valid ? granted.rate : granted.least;
  return std::clamp<uint64_t>(rate.get(std::memory_order_relaxed), 1, most);
}

}  // namespace vrdma::provisioning
