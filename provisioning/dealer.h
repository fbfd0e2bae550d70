// Control's side of a budget's rates: grants each process its part of the capacities.
//
// The capacity is divided among the processes as Shares divides it among vdevices. A process is one
// member, with the sum of the least and of the most of its vdevices, and the weight of those with
// work; what it uses and wants is in its slot of the budget's page.
//
// A process that asks alone has the whole capacity until another asks: then nothing is computed,
// and control may sleep. A process that begins to ask has no grant and rings, so control calls
// deal(), and again every kPeriod as long as deal() returns true. These grants end after
// kGrantTime, so that processes keep to what is guaranteed if control is silent. The grants add up
// to the capacity. Between its ring and deal(), a process uses at most its guarantee in addition.
//
// What a worker writes into its slot is not believed: any number means some demand and a weight of
// at most its vdevices, and no demand yields more than the process's most.
//
// Belongs to the control thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "core/base/event_loop.h"
#include "provisioning/budget_page.h"
#include "provisioning/shares.h"

namespace vrdma::provisioning {

constexpr auto kGrantTime = 10 * kPeriod;

class Dealer {
 public:
  // Of the vdevices of a process, for each Rate.
  struct Bounds {
    uint64_t least = 0, most = kUnbounded;
  };
  using AllBounds = std::array<Bounds, kRateCount>;

  explicit Dealer(std::shared_ptr<BudgetPage> page);

  void set_capacity(Rate rate, uint64_t capacity);  // or kUnbounded
  // The process of `slot`, less than kBudgetSlots, has so many vdevices of the budget.
  void set_process(size_t slot, size_t vdevices, const AllBounds& bounds);
  // The process of `slot` has ended, or never begun.
  void clear(size_t slot);
  [[nodiscard]] bool has(size_t slot) const { return processes_.contains(slot); }

  // Grants anew. True: several processes ask for the same rate, so call it again after kPeriod.
  [[nodiscard]] bool deal(base::TimePoint now);

 private:
  struct Asking {
    Shares::Member member;
    uint64_t read_at = 0;  // BudgetPage::Asked::at when it was read last
  };
  struct Process {
    size_t vdevices = 0;
    std::array<Asking, kRateCount> rates;
  };
  [[nodiscard]] bool deal(size_t rate, base::TimePoint now);
  void read_demand(size_t slot, Process& process, size_t rate, base::TimePoint now);
  void grant(size_t slot, size_t rate, uint64_t amount, uint64_t until);
  void begin(size_t rate);

  const std::shared_ptr<BudgetPage> page_;
  std::array<uint64_t, kRateCount> capacities_{};
  std::array<std::shared_ptr<Shares>, kRateCount> shares_;
  std::map<size_t, Process> processes_;  // by slot
};

}  // namespace vrdma::provisioning
