// The resources that a tenant or a parent assigns to its vdevices: default limits, ceilings, and
// how far the limits may overcommit the ceilings.
//
// The limits of all its vdevices together may be at most `overcommit` percent of the ceiling. For a
// kind that bounds each object, each limit may be at most the ceiling. Whatever the limits are, the
// current use never exceeds the ceiling (Pool).
//
// A limit on bandwidth, msg_rate or cpu guarantees nothing: the ceiling is divided among the
// vdevices with work (Shares). bandwidth_min is the guarantee: the sum of all must not exceed the
// ceiling of bandwidth, regardless of overcommitment. A parent without that ceiling cannot
// guarantee anything.
//
// Belongs to the control thread. Workers use the page (budget_page.h).
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/shared_page.h"
#include "provisioning/budget_page.h"
#include "provisioning/dealer.h"
#include "provisioning/kind.h"
#include "provisioning/pool.h"

namespace vrdma::provisioning {

// What an operator sets. A kind that is not listed has no default or no ceiling of this budget.
struct BudgetSpec {
  std::vector<Setting> defaults;  // limits of a vdevice that does not set them
  std::vector<Setting> ceilings;  // for all its vdevices together
  uint32_t overcommit = 0;        // percent; 0: unchanged (initially 100)
  // Kinds whose default is removed, before `defaults` is set.
  std::vector<std::string> no_default = {};
};

struct BudgetRow {
  Kind kind{};
  std::optional<uint64_t> initial, ceiling;
  // Sum of the limits; of a per-object kind, the largest; of bandwidth, the sum of the guarantees.
  uint64_t given = 0;
  uint64_t used = 0;
};

class Budget {
  struct Granted {
    Limits limits{};
    size_t slot = kControlSlot;  // no worker's yet
  };

 public:
  // The limits assigned to a vdevice. Move-only; the destructor returns them.
  class Grant {
   public:
    Grant() = default;
    Grant(Grant&& other) noexcept;
    Grant& operator=(Grant&& other) noexcept;
    Grant(const Grant&) = delete;
    Grant& operator=(const Grant&) = delete;
    ~Grant() { give_back(); }
    // Checks new limits as if the present ones were returned first. EBUSY with a sentence.
    [[nodiscard]] base::Result<void> check(const Limits& limits) const;
    void change(const Limits& limits);  // must have passed check()
    // The vdevice draws from the budget in the process of this slot.
    void place(size_t slot);

   private:
    friend class Budget;
    void give_back();
    Budget* budget_ = nullptr;
    std::list<Granted>::iterator granted_;
  };

  // `number`: what messages to workers call it. `whose`: "tenant red". If `guarantees`,
  // bandwidth_min requires a ceiling of bandwidth. Fails if no page can be made.
  [[nodiscard]] static base::Result<std::unique_ptr<Budget>> make(uint64_t number,
                                                                  std::string whose,
                                                                  bool guarantees);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Adds to or replaces the previous settings, all or nothing. EINVAL for a bad kind or limit;
  // EBUSY for a ceiling below the current use or, with overcommitment, below the assigned limits.
  [[nodiscard]] base::Result<void> set(const BudgetSpec& spec);
  [[nodiscard]] BudgetSpec spec() const;  // all settings
  void put_back(const BudgetSpec& spec);  // what spec() returned before the last set()

  // Sets those limits in `wanted` that are absent and have a default in this budget.
  void fill_defaults(Wanted& wanted) const;
  // The limit, or the ceiling if that is lower; for limits that no operator chose.
  [[nodiscard]] uint64_t capped(Kind kind, uint64_t limit) const;

  [[nodiscard]] Grant grant();  // initially empty
  [[nodiscard]] uint64_t number() const { return number_; }
  [[nodiscard]] const std::string& whose() const { return whose_; }
  // For the processes that use the budget.
  [[nodiscard]] const base::SharedPage<BudgetPage>& page() const { return page_; }
  // Control's: what it shows as used is the use of all processes.
  [[nodiscard]] const std::shared_ptr<Pool>& pool() const { return pool_; }
  [[nodiscard]] Dealer& dealer() { return dealer_; }
  // The process of `slot` has ended: nothing that it used is counted any more. Vdevices that go on
  // in another process must be placed again.
  void clear(size_t slot);
  [[nodiscard]] std::vector<BudgetRow> rows() const;
  [[nodiscard]] uint32_t overcommit() const { return overcommit_; }
  [[nodiscard]] size_t grants() const { return granted_.size(); }
  // The sum of the limits that the ceilings allow; of a per-object kind, each limit. None: any.
  [[nodiscard]] static std::optional<uint64_t> most(const Wanted& ceilings, uint32_t overcommit,
                                                    Kind kind);
  // How many more vdevices with these limits it would take; UINT64_MAX: its ceilings bound none of
  // them.
  [[nodiscard]] uint64_t room(const Limits& limits) const;
  [[nodiscard]] bool is_set() const;  // whether an operator set anything
  // Whether its vdevices share a rate.
  [[nodiscard]] bool deals() const;

 private:
  Budget(uint64_t number, std::string whose, bool guarantees, base::SharedPage<BudgetPage> page);
  [[nodiscard]] base::Result<void> check(const Wanted& ceilings, uint32_t overcommit) const;
  void update_process(size_t slot);
  void adopt(const Wanted& defaults, const Wanted& ceilings, uint32_t overcommit);
  [[nodiscard]] uint64_t given(Kind kind) const;

  const uint64_t number_;
  const std::string whose_;
  const bool guarantees_;
  const base::SharedPage<BudgetPage> page_;
  Wanted defaults_, ceilings_;
  uint32_t overcommit_ = 100;
  std::list<Granted> granted_;
  std::shared_ptr<Pool> pool_;
  Dealer dealer_;
};

}  // namespace vrdma::provisioning
