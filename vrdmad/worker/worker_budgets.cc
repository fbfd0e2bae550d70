#include "vrdmad/worker/worker_budgets.h"

namespace vrdma::vrdmad {

std::shared_ptr<provisioning::Pool> WorkerBudgets::pool(const BudgetName& budget,
                                                        const Page& page) {
  if (page.get() == nullptr) return nullptr;
  std::erase_if(pools_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = pools_[budget.number];
  auto pool = known.lock();
  if (pool == nullptr)
    known = pool = std::make_shared<provisioning::Pool>(budget.whose, page.get(), slot_);
  return pool;
}

}  // namespace vrdma::vrdmad
