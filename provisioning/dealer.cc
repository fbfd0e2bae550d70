#include "provisioning/dealer.h"

#include <algorithm>

namespace vrdma::provisioning {

namespace {
constexpr uint64_t kAlways = UINT64_MAX;  // a time
}

Dealer::Dealer(std::shared_ptr<BudgetPage> page) : page_(std::move(page)) {
  for (auto& shares : shares_) shares = std::make_shared<Shares>();
}

// A reader that sees the time also sees the amount that belongs to it.
void Dealer::grant(size_t slot, size_t rate, uint64_t amount, uint64_t until) {
  auto& granted = page_->slots[slot].granted[rate];
  granted.rate.set(amount, std::memory_order_relaxed);
  granted.until.set(until, std::memory_order_release);
}

// The only process has all; of several, each rings when it asks.
void Dealer::begin(size_t rate) {
  const bool alone = processes_.size() == 1;
  for (const auto& [slot, process] : processes_)
    grant(slot, rate, alone ? capacities_[rate] : 0, alone ? kAlways : 0);
}

void Dealer::set_capacity(Rate rate, uint64_t capacity) {
  const auto index = static_cast<size_t>(rate);
  if (capacities_[index] == capacity) return;
  capacities_[index] = capacity;
  shares_[index]->set_capacity(capacity);
  page_->capacities[index].set(capacity);
  begin(index);
}

void Dealer::set_process(size_t slot, size_t vdevices, const AllBounds& bounds) {
  const bool is_new = !processes_.contains(slot);
  Process& process = processes_[slot];
  process.vdevices = vdevices;
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    auto& its = process.rates[rate];
    if (is_new) {
      its.member = shares_[rate]->join();
      grant(slot, rate, 0, 0);
    }
    page_->slots[slot].granted[rate].least.set(bounds[rate].least);
    its.member.set(bounds[rate].least, bounds[rate].most);
    its.read_at = 0;  // the next deal() reads its demand again
    if (is_new && processes_.size() == 1) begin(rate);
  }
}

void Dealer::clear(size_t slot) {
  for (size_t rate = 0; rate < kRateCount; ++rate) {
    auto& asked = page_->slots[slot].asked[rate];
    for (Word* word : {&asked.at, &asked.used, &asked.eager, &asked.members, &asked.most})
      word->set(0);
    grant(slot, rate, 0, 0);
    page_->slots[slot].granted[rate].least.set(0);
  }
  if (processes_.erase(slot) == 0 || processes_.size() != 1) return;
  for (size_t rate = 0; rate < kRateCount; ++rate) begin(rate);
}

// A time that is still to come counts as now.
void Dealer::read_demand(size_t slot, Process& process, size_t rate, base::TimePoint now) {
  const auto& asked = page_->slots[slot].asked[rate];
  auto& its = process.rates[rate];
  const uint64_t at = asked.at.get(std::memory_order_acquire);
  if (at == its.read_at) return;
  its.read_at = at;
  const base::TimePoint when{base::Duration(std::min(at, nanoseconds(now)))};
  const auto word = [](const Word& of) { return of.get(std::memory_order_relaxed); };
  const uint64_t members =
      std::clamp<uint64_t>(word(asked.members), 1, std::max<uint64_t>(process.vdevices, 1));
  its.member.report(when, {static_cast<double>(std::min(word(asked.used), capacities_[rate])),
                           word(asked.eager) != 0, members, word(asked.most)});
}

bool Dealer::deal(size_t rate, base::TimePoint now) {
  if (capacities_[rate] == kUnbounded || processes_.size() < 2) return false;
  for (auto& [slot, process] : processes_) read_demand(slot, process, rate, now);
  const size_t asking = shares_[rate]->deal(now);
  if (asking == 0) return false;  // the last that asked alone keeps its grant
  const uint64_t until = asking == 1 ? kAlways : nanoseconds(now + kGrantTime);
  for (const auto& [slot, process] : processes_) {
    const uint64_t amount = process.rates[rate].member.rate(now);
    grant(slot, rate, amount, amount > 0 ? until : 0);
  }
  return asking > 1;
}

bool Dealer::deal(base::TimePoint now) {
  bool again = false;
  for (size_t rate = 0; rate < kRateCount; ++rate)
    if (deal(rate, now)) again = true;
  return again;
}

}  // namespace vrdma::provisioning
