// Which ceilings the limits of vdevices exceed: provisioning::Budget, for all budgets at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/apply/objects.h"

namespace vrdma::cli::apply {

struct Excess {
  BudgetKey budget;
  std::string sentence;
};

// `vdevices` with all of their limits. The first excess of each budget.
[[nodiscard]] std::vector<Excess> excesses(const std::map<BudgetKey, Budget>& budgets,
                                           const std::vector<Vdevice>& vdevices);

}  // namespace vrdma::cli::apply
