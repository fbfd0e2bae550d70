// The total use of the vdevices of a tenant or a parent, bounded by ceilings.
//
// Without overcommitment, the limits themselves add up to no more than the ceiling; with it, the
// pool enforces the ceiling. The vdevices' ledgers draw from it, in several processes: each writes
// its own use into its slot of the budget's page, and a process that takes more adds up all slots.
// Of two processes that take at the same moment, both may be refused what only one can have. While
// there is no ceiling, no other slot is read.
//
// A worker that was taken over can make the pool refuse others, or admit more than the ceiling
// (budget_page.h). It has no effect on other pools, nor on what the limits of a vdevice allow it.
//
// Thread-safe. A process has at most one pool of a budget.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "provisioning/budget_page.h"
#include "provisioning/kind.h"

namespace vrdma::provisioning {

class Pool {
 public:
  // `whose`: "tenant red", for error messages. Counts in this process only and has no ceilings.
  explicit Pool(std::string whose);
  // Counts in `slot`, which must be less than kBudgetSlots.
  Pool(std::string whose, std::shared_ptr<BudgetPage> page, size_t slot);

  // ENOMEM with a sentence if that would exceed the ceiling; nothing is taken then.
  [[nodiscard]] base::Result<void> take(Kind kind, uint64_t amount);
  void give_back(Kind kind, uint64_t amount);
  // Of all processes; at most UINT64_MAX.
  [[nodiscard]] uint64_t used(Kind kind) const;
  [[nodiscard]] const std::string& whose() const { return whose_; }

  // Control only, of a pool with a page.
  void set_ceiling(Kind kind, uint64_t ceiling);  // kCeiling: none
  // From now on, what the process of `slot` uses is counted. Call before it takes anything.
  void admit(size_t slot);
  // The process of `slot` has ended: what it used is free.
  void clear(size_t slot);

 private:
  [[nodiscard]] uint64_t with_others(size_t kind, uint64_t own) const;
  void show(size_t kind, uint64_t own);

  const std::string whose_;
  const std::shared_ptr<BudgetPage> page_;  // null: counts in this process only
  const size_t slot_ = 0;
  mutable std::mutex mutex_;
  std::array<uint64_t, kKindCount> own_{};  // the page shows it
};

}  // namespace vrdma::provisioning
