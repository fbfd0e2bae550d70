// The budgets that the vdevices of one process draw from, by number.
//
// A process has one pool of a budget, because the pool is the only writer of the process's slot of
// the page. It lives as long as a ledger or a charge refers to it.
//
// Belongs to the worker's thread.
#pragma once

#include <map>
#include <memory>

#include "core/base/shared_page.h"
#include "provisioning/pool.h"
#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

class WorkerBudgets {
 public:
  using Page = base::SharedPage<provisioning::BudgetPage>;

  // `slot`: the process's in the page of each budget, chosen by control.
  explicit WorkerBudgets(size_t slot) : slot_(slot) {}

  [[nodiscard]] size_t slot() const { return slot_; }
  // nullptr: there is no page, so the vdevice draws from no such budget.
  [[nodiscard]] std::shared_ptr<provisioning::Pool> pool(const BudgetName& budget,
                                                         const Page& page);

 private:
  const size_t slot_;
  std::map<uint64_t, std::weak_ptr<provisioning::Pool>> pools_;
};

}  // namespace vrdma::vrdmad
