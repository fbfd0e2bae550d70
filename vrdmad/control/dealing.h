// Answers workers that begin to use a rate: has their budgets deal it, every kPeriod as long as
// several processes ask for the same rate.
//
// A budget is dealt at most once in a period, however often workers ring. While no worker rings
// and no budget is dealt, there is no timer.
//
// Belongs to the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "core/base/event_loop.h"
#include "vrdmad/control/budgets.h"

namespace vrdma::vrdmad {

class Dealing {
 public:
  // Both must outlive it.
  Dealing(base::EventLoop& loop, Budgets& budgets) : loop_(loop), budgets_(budgets) {}

  // The worker of `slot` has sent WantRates for the budget of this number. Ignored if it has no
  // vdevice of that budget.
  void rung(uint64_t number, size_t slot);
  // Whether a budget is dealt again and again.
  [[nodiscard]] bool busy() const { return timer_.active(); }

 private:
  void again();

  base::EventLoop& loop_;
  Budgets& budgets_;
  std::set<uint64_t> dealt_;  // within the last period, by number
  base::EventLoop::Timer timer_;
};

}  // namespace vrdma::vrdmad
