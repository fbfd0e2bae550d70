// Who has how much: the budgets of tenants and parents, and what vdevices were given of them.
//
// The limit of a kind is what the vdevice's operator said, else the tenant's default, else the
// parent's, else the kind's initial one; the latter no higher than the ceilings.
//
// Belongs to the control thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "provisioning/budget.h"
#include "vrdmad/worker/pacer.h"

namespace vrdma::vrdmad {

class Budgets {
 public:
  enum class Scope : uint8_t { kTenant, kParent };

  // What one vdevice was given. Move-only; the destructor gives it back.
  class Allotment {
   public:
    // As limits, for a ledger; all kinds.
    [[nodiscard]] std::vector<provisioning::Setting> settings() const;
    // EBUSY with a sentence if that is more than the tenant or the parent has left.
    [[nodiscard]] base::Result<void> check(const std::vector<provisioning::Setting>& changes) const;
    void change(const std::vector<provisioning::Setting>& changes);  // that were checked
    // A worker has to execute all of its work: it is limited, or what it has a part in is.
    [[nodiscard]] bool limited() const;
    [[nodiscard]] Rates rates() const;
    [[nodiscard]] std::vector<std::shared_ptr<provisioning::Pool>> pools() const;

   private:
    friend class Budgets;
    [[nodiscard]] base::Result<provisioning::Limits> changed(
        const std::vector<provisioning::Setting>& changes) const;
    provisioning::Limits limits_{};
    provisioning::Budget* tenant_ = nullptr;
    provisioning::Budget* parent_ = nullptr;
    provisioning::Budget::Grant from_tenant_, from_parent_;
  };

  [[nodiscard]] base::Result<Allotment> allot(const std::string& tenant, const std::string& parent,
                                              const std::vector<provisioning::Setting>& quota);

  // As Budget::set(). A tenant that nothing was said of yet comes into being.
  [[nodiscard]] base::Result<void> set(Scope scope, const std::string& name,
                                       const provisioning::BudgetSpec& spec);
  // All that was set; and the same again, after that could not be kept.
  [[nodiscard]] provisioning::BudgetSpec spec(Scope scope, const std::string& name);
  void put_back(Scope scope, const std::string& name, const provisioning::BudgetSpec& spec);
  // By name: those that something was said of or that have vdevices.
  [[nodiscard]] std::map<std::string, const provisioning::Budget*> list(Scope scope) const;

 private:
  provisioning::Budget& at(Scope scope, const std::string& name);

  std::map<std::string, std::unique_ptr<provisioning::Budget>> tenants_, parents_;
};

}  // namespace vrdma::vrdmad
