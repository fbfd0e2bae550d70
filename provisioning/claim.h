// What one process may deal of a rate of a budget: control grants it in the budget's page.
//
// The process writes into its slot what its vdevices use. As long as it has a grant, it deals that
// (Shares). If it has none, because it was idle or control is silent, it deals what its vdevices
// are guaranteed, and calls `ring`, so that control looks at the page (Dealer).
//
// Belongs to one Shares, which locks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "core/base/event_loop.h"
#include "provisioning/budget_page.h"

namespace vrdma::provisioning {

// What a process asks for, on behalf of its vdevices with work.
struct Demand {
  double used = 0;             // their rate since the last call
  bool eager = false;          // they would have used more
  uint64_t members = 1;        // their number: each weighs as much as those of other processes
  uint64_t most = kUnbounded;  // what they may use together
};

class Claim {
 public:
  // `slot`: less than kBudgetSlots. `ring` is called on the thread that made the claim, at most
  // once in a period, and must neither wait nor call back.
  Claim(std::shared_ptr<BudgetPage> page, size_t slot, Rate rate, std::function<void()> ring);

  // The capacity of the whole budget, or kUnbounded.
  [[nodiscard]] uint64_t whole() const;
  // Returns what the process may deal per second until it asks again, at least 1.
  [[nodiscard]] uint64_t ask(base::TimePoint now, const Demand& demand);

 private:
  const std::shared_ptr<BudgetPage> page_;
  BudgetPage::Slot& slot_;
  const size_t rate_;
  const std::function<void()> ring_;
  const std::thread::id thread_ = std::this_thread::get_id();
  base::TimePoint rang_{};
};

}  // namespace vrdma::provisioning
