#include "vrdmad/control/dealing.h"

namespace vrdma::vrdmad {

void Dealing::rung(uint64_t number, size_t slot) {
  if (!budgets_.has(number, slot) || !dealt_.insert(number).second) return;
  (void)budgets_.deal(number, loop_.now());
  if (!timer_.active()) timer_ = loop_.after(provisioning::kPeriod, [this] { again(); });
}

void Dealing::again() {
  timer_.reset();
  const auto now = loop_.now();
  std::erase_if(dealt_, [&](uint64_t number) { return !budgets_.deal(number, now); });
  if (!dealt_.empty()) timer_ = loop_.after(provisioning::kPeriod, [this] { again(); });
}

}  // namespace vrdma::vrdmad
