// The budgets that the vdevices of one process draw from, by number.
//
// A process has one pool and one Shares for each rate of a budget, because they are the only
// writers of the process's slot of the page. They live as long as a vdevice or a charge refers to
// them.
//
// Belongs to the worker's thread.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>

#include "core/base/shared_page.h"
#include "provisioning/pool.h"
#include "provisioning/shares.h"
#include "vrdmad/worker/messages.h"
#include "vrdmad/worker/pacer.h"

namespace vrdma::vrdmad {

class WorkerBudgets {
 public:
  using Page = base::SharedPage<provisioning::BudgetPage>;

  // `ring` is called on the worker's thread, at most once in a provisioning::kPeriod for each rate
  // of a budget, when the process begins to use it: control must then look at the page of the
  // budget of this number.
  explicit WorkerBudgets(std::function<void(uint64_t number)> ring) : ring_(std::move(ring)) {}

  // The process's slot in the page of each budget, chosen by control. Call before the others.
  void set_slot(size_t slot) { slot_ = slot; }
  // nullptr: there is no page, so the vdevice draws from no such budget.
  [[nodiscard]] std::shared_ptr<provisioning::Pool> pool(const BudgetName& budget,
                                                         const Page& page);
  // Adds the budget's rates to those that a vdevice shares; none if there is no page.
  void add_rates(const BudgetName& budget, const Page& page, Rates* rates);

 private:
  struct Budget {
    std::weak_ptr<provisioning::Pool> pool;
    std::array<std::weak_ptr<provisioning::Shares>, provisioning::kRateCount> shares;
    [[nodiscard]] bool expired() const;
  };
  [[nodiscard]] Budget& at(uint64_t number);

  size_t slot_ = provisioning::kControlSlot + 1;
  const std::function<void(uint64_t)> ring_;
  std::map<uint64_t, Budget> budgets_;
};

}  // namespace vrdma::vrdmad
