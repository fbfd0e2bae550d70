#include "provisioning/pool.h"

#include <algorithm>

namespace vrdma::provisioning {

Pool::Pool(std::string whose) : whose_(std::move(whose)) {}

Pool::Pool(std::string whose, std::shared_ptr<BudgetPage> page, size_t slot)
    : whose_(std::move(whose)), page_(std::move(page)), slot_(slot) {}

// The order of show() and with_others() is that of all processes: of two that take, at least one
// sees the other's.
void Pool::show(size_t kind, uint64_t own) {
  if (page_ != nullptr) page_->slots[slot_].used[kind].set(own);
}

uint64_t Pool::with_others(size_t kind, uint64_t own) const {
  if (page_ == nullptr) return own;
  uint64_t sum = own;
  const size_t high = std::min<uint64_t>(page_->high.get(), kBudgetSlots);
  for (size_t slot = 0; slot < high; ++slot) {
    if (slot == slot_) continue;
    const uint64_t used = page_->slots[slot].used[kind].get();
    sum = used > UINT64_MAX - sum ? UINT64_MAX : sum + used;
  }
  return sum;
}

base::Result<void> Pool::take(Kind kind, uint64_t amount) {
  const auto index = static_cast<size_t>(kind);
  const std::lock_guard lock(mutex_);
  uint64_t& own = own_[index];
  show(index, own + amount);
  const uint64_t ceiling = page_ != nullptr ? page_->ceilings[index].get() : kCeiling;
  const uint64_t used = ceiling == kCeiling ? own : with_others(index, own);
  if (used > ceiling || amount > ceiling - used) {
    show(index, own);
    return base::fail(ENOMEM, "quota " + std::string(traits(kind).name) + " of " + whose_ + ": " +
                                  std::to_string(amount) + " more wanted, " + std::to_string(used) +
                                  " in use, the ceiling is " + std::to_string(ceiling));
  }
  own += amount;
  return {};
}

void Pool::give_back(Kind kind, uint64_t amount) {
  const auto index = static_cast<size_t>(kind);
  const std::lock_guard lock(mutex_);
  own_[index] -= amount;
  show(index, own_[index]);
}

uint64_t Pool::used(Kind kind) const {
  const auto index = static_cast<size_t>(kind);
  const std::lock_guard lock(mutex_);
  return with_others(index, own_[index]);
}

void Pool::set_ceiling(Kind kind, uint64_t ceiling) {
  page_->ceilings[static_cast<size_t>(kind)].set(ceiling);
}

void Pool::admit(size_t slot) {
  if (page_->high.get() <= slot) page_->high.set(slot + 1);
}

void Pool::clear(size_t slot) {
  for (Word& used : page_->slots[slot].used) used.set(0);
}

}  // namespace vrdma::provisioning
