// The budgets of tenants and parents, and what their vdevices were allotted from them.
//
// The limit of a kind is the one in the vdevice's own quota, else the tenant's default, else the
// parent's default, else the initial limit of the kind, capped by the ceilings. What the parent
// grants to the vdevice (Parent::open) bounds all of them.
//
// Belongs to the control thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "provisioning/budget.h"
#include "vrdmad/worker/messages.h"

namespace vrdma::vrdmad {

class Budgets {
 public:
  enum class Scope : uint8_t { kTenant, kParent };

  // The limits of one vdevice. Move-only; the destructor returns them to the budgets.
  class Allotment {
   public:
    [[nodiscard]] const provisioning::Limits& limits() const { return limits_; }
    // Lowers the limits to what the vdevice's parent grants it, now and at later changes.
    void bound(const provisioning::Limits& granted);
    // The changes with what the parent grants for "max". EBUSY: one is above that.
    [[nodiscard]] base::Result<std::vector<provisioning::Setting>> granted(
        const std::vector<provisioning::Setting>& changes) const;
    // The limits of all kinds, for a ledger.
    [[nodiscard]] std::vector<provisioning::Setting> settings() const;
    // EBUSY with a sentence if the tenant or the parent has too little left.
    [[nodiscard]] base::Result<void> check(const std::vector<provisioning::Setting>& changes) const;
    void change(const std::vector<provisioning::Setting>& changes);  // passed by both
    // Holds what these changes need, too, until the next change(): with it the vdevice can have
    // them, or stay as it is, whatever others ask for meanwhile.
    void reserve(const std::vector<provisioning::Setting>& changes);
    // The vdevice goes to the worker of this slot (budget_page.h). Call before the worker gets it.
    void place(size_t slot);
    // A rate limit applies to the vdevice, its tenant or its parent, so a worker must execute all
    // of its requests.
    [[nodiscard]] bool limited() const;
    // Control's own, for a ledger of the control thread.
    [[nodiscard]] std::vector<std::shared_ptr<provisioning::Pool>> pools() const;
    // For the worker of the vdevice.
    [[nodiscard]] std::vector<Limit> limit_list() const;
    [[nodiscard]] const provisioning::Budget& tenant() const { return *tenant_; }
    [[nodiscard]] const provisioning::Budget& parent() const { return *parent_; }

   private:
    friend class Budgets;
    [[nodiscard]] base::Result<provisioning::Limits> changed(
        const std::vector<provisioning::Setting>& changes) const;
    provisioning::Limits limits_{};
    provisioning::Limits granted_ = provisioning::ceilings();
    provisioning::Budget* tenant_ = nullptr;
    provisioning::Budget* parent_ = nullptr;
    provisioning::Budget::Grant from_tenant_, from_parent_;
  };

  // Fails also if no page can be made for a new budget.
  [[nodiscard]] base::Result<Allotment> allot(const std::string& tenant, const std::string& parent,
                                              const std::vector<provisioning::Setting>& quota);
  // How many more vdevices of this quota allot() would give; UINT64_MAX: no ceiling bounds them. An
  // empty tenant: each is a tenant of its own. EINVAL: a bad quota.
  [[nodiscard]] base::Result<uint64_t> room(const std::string& tenant, const std::string& parent,
                                            const std::vector<provisioning::Setting>& quota);
  // The limit of a vdevice without a quota of its own.
  [[nodiscard]] uint64_t initial(const std::string& tenant, const std::string& parent,
                                 provisioning::Kind kind);

  // As Budget::set(). Creates the budget of a tenant that has none.
  [[nodiscard]] base::Result<void> set(Scope scope, const std::string& name,
                                       const provisioning::BudgetSpec& spec);
  // spec() returns all settings; put_back() restores them if they could not be stored.
  [[nodiscard]] provisioning::BudgetSpec spec(Scope scope, const std::string& name);
  void put_back(Scope scope, const std::string& name, const provisioning::BudgetSpec& spec);
  // By name: budgets with settings or vdevices.
  [[nodiscard]] std::map<std::string, const provisioning::Budget*> list(Scope scope) const;

  // Forgets the budgets of tenants without vdevices and settings.
  void drop_unused();
  // As Dealer::deal() of the budget of this number. False also if there is no such budget.
  [[nodiscard]] bool deal(uint64_t number, base::TimePoint now);
  // Whether the process of `slot` has, or had, vdevices of the budget of this number.
  [[nodiscard]] bool has(uint64_t number, size_t slot);
  // The worker of `slot` has ended: its use of all budgets is free. Its vdevices that go on in
  // another process must be placed again.
  void clear(size_t slot);

 private:
  using Named = std::map<std::string, std::unique_ptr<provisioning::Budget>>;
  [[nodiscard]] Named& all(Scope scope) { return scope == Scope::kTenant ? tenants_ : parents_; }
  // nullptr: there is none.
  [[nodiscard]] provisioning::Budget* find(Scope scope, const std::string& name);
  [[nodiscard]] base::Result<provisioning::Budget*> at(Scope scope, const std::string& name);

  Named tenants_, parents_;
  std::map<uint64_t, provisioning::Budget*> numbers_;
  uint64_t next_number_ = 1;
};

}  // namespace vrdma::vrdmad
