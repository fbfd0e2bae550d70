#include "provisioning/shares.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace vrdma::provisioning {

namespace {

// A member that has not asked for that long is idle.
constexpr auto kPatience = 10 * kPeriod;

// Factor per period by which the demand of a member that uses less decreases.
constexpr double kFade = 0.9;

constexpr double kAnything = std::numeric_limits<double>::infinity();

// The level at which the sum of clamp(level * weight, least, top) over all members equals
// `capacity`, which is between the sums of both bounds.
template <class Tops>
double level_of(const Tops& wants, double capacity) {
  double low = 0, high = capacity;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const auto& [least, top, weight] : wants) sum += std::clamp(middle * weight, least, top);
    (sum < capacity ? low : high) = middle;
  }
  return high;
}

}  // namespace

Shares::Member& Shares::Member::operator=(Member&& other) noexcept {
  if (this != &other) {
    leave();
    shares_ = std::move(other.shares_);
    want_ = other.want_;
  }
  return *this;
}

void Shares::Member::leave() {
  if (shares_ == nullptr) return;
  {
    const std::lock_guard lock(shares_->mutex_);
    shares_->wants_.erase(want_);
  }
  shares_ = nullptr;
}

void Shares::Member::set(uint64_t least, uint64_t most) {
  const std::lock_guard lock(shares_->mutex_);
  want_->least = static_cast<double>(least);
  want_->most = most == kUnbounded ? kAnything : static_cast<double>(most);
  want_->asked = {};  // treated as newly active
}

bool Shares::Member::note(base::TimePoint now, double used, bool eager) {
  const bool begins = now - want_->asked > kPatience;
  want_->asked = now;
  want_->used = used;
  want_->eager = eager;
  // The headroom lets a member that wants more show it within a few periods. The demand decreases
  // slowly, because a program that is not scheduled uses less without wanting less.
  const double shown = used * 1.25 + shares_->whole_ / 100;
  want_->demand = eager || begins ? shares_->whole_ : std::max(shown, want_->demand * kFade);
  return begins;
}

uint64_t Shares::Member::ask(base::TimePoint now, double used, bool eager) {
  const std::lock_guard lock(shares_->mutex_);
  shares_->follow_claim();
  if (shares_->whole_ == kUnbounded) return kUnbounded;
  if (note(now, used, eager) || now - shares_->dealt_ >= kPeriod) shares_->deal_locked(now);
  return std::max<uint64_t>(static_cast<uint64_t>(want_->rate), 1);
}

void Shares::Member::report(base::TimePoint now, const Demand& demand) {
  const std::lock_guard lock(shares_->mutex_);
  want_->weight = static_cast<double>(demand.members);
  note(now, demand.used, demand.eager);
  if (demand.most != kUnbounded)
    want_->demand = std::min(want_->demand, static_cast<double>(demand.most));
}

uint64_t Shares::Member::rate(base::TimePoint now) const {
  const std::lock_guard lock(shares_->mutex_);
  if (now - want_->asked > kPatience) return 0;
  return std::max<uint64_t>(static_cast<uint64_t>(want_->rate), 1);
}

void Shares::set_capacity(uint64_t capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = whole_ = static_cast<double>(capacity);
  dealt_ = {};
}

// Control may have changed the capacity of the budget.
void Shares::follow_claim() {
  if (claim_ == nullptr) return;
  const auto whole = static_cast<double>(claim_->whole());
  if (whole != std::exchange(whole_, whole)) dealt_ = {};
}

// Of all members that have asked recently, as if they were one.
Demand Shares::demand(base::TimePoint now) const {
  Demand all{0, false, 0, kUnbounded};
  double most = 0;
  for (const auto& want : wants_) {
    if (now - want.asked > kPatience) continue;
    ++all.members;
    all.used += want.used;
    all.eager = all.eager || want.eager;
    most += want.most;
  }
  if (most < whole_) all.most = std::max<uint64_t>(static_cast<uint64_t>(most), 1);
  return all;
}

Shares::Member Shares::join() {
  const std::lock_guard lock(mutex_);
  Member member;
  member.shares_ = shared_from_this();
  member.want_ = wants_.emplace(wants_.end());
  member.want_->most = kAnything;
  return member;
}

size_t Shares::deal(base::TimePoint now) {
  const std::lock_guard lock(mutex_);
  return deal_locked(now);
}

size_t Shares::deal_locked(base::TimePoint now) {
  dealt_ = now;
  if (claim_ != nullptr) capacity_ = static_cast<double>(claim_->ask(now, demand(now)));
  struct Bounds {
    double least, top, weight;
  };
  std::vector<Bounds> bounds;
  std::vector<Member::Want*> wanting;
  double least = 0, tops = 0, weights = 0;
  for (auto& want : wants_) {
    if (now - want.asked > kPatience) continue;
    const double top = std::min({want.most, want.demand, capacity_});
    bounds.push_back({std::min(want.least, top), top, want.weight});
    wanting.push_back(&want);
    least += bounds.back().least;
    tops += top;
    weights += want.weight;
  }
  const double left = std::max(capacity_ - tops, 0.0) / weights;
  const double level = least < capacity_ && tops > capacity_ ? level_of(bounds, capacity_) : 0;
  for (size_t i = 0; i < wanting.size(); ++i) {
    const auto [lower, top, weight] = bounds[i];
    double& rate = wanting[i]->rate;
    if (least >= capacity_)
      rate = lower * capacity_ / least;
    else if (tops <= capacity_)
      rate = std::min(top + left * weight, wanting[i]->most);
    else
      rate = std::clamp(level * weight, lower, top);
  }
  return wanting.size();
}

}  // namespace vrdma::provisioning
