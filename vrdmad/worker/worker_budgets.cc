#include "vrdmad/worker/worker_budgets.h"

#include <algorithm>

namespace vrdma::vrdmad {

using provisioning::Claim;
using provisioning::Pool;
using provisioning::Rate;
using provisioning::Shares;

bool WorkerBudgets::Budget::expired() const {
  return pool.expired() &&
         std::ranges::all_of(shares, [](const auto& one) { return one.expired(); });
}

WorkerBudgets::Budget& WorkerBudgets::at(uint64_t number) {
  std::erase_if(budgets_, [&](const auto& entry) { return entry.second.expired(); });
  return budgets_[number];
}

std::shared_ptr<Pool> WorkerBudgets::pool(const BudgetName& budget, const Page& page) {
  if (page.get() == nullptr) return nullptr;
  auto& known = at(budget.number).pool;
  auto pool = known.lock();
  if (pool == nullptr) known = pool = std::make_shared<Pool>(budget.whose, page.get(), slot_);
  return pool;
}

void WorkerBudgets::add_rates(const BudgetName& budget, const Page& page, Rates* rates) {
  if (page.get() == nullptr) return;
  Budget& known = at(budget.number);
  const auto shares = [&](Rate rate) {
    auto& its = known.shares[static_cast<size_t>(rate)];
    auto all = its.lock();
    if (all == nullptr)
      its = all = std::make_shared<Shares>(std::make_unique<Claim>(
          page.get(), slot_, rate, [ring = ring_, number = budget.number] { ring(number); }));
    return all;
  };
  rates->bandwidth.push_back(shares(Rate::kBandwidth));
  rates->messages.push_back(shares(Rate::kMessages));
  rates->cpu.push_back(shares(Rate::kCpu));
}

}  // namespace vrdma::vrdmad
