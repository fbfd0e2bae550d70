#include "cli/apply/budget_check.h"

#include <algorithm>
#include <optional>

#include "provisioning/budget.h"

namespace vrdma::cli::apply {

namespace {

using provisioning::Kind;

provisioning::Wanted by_kind(const Limits& limits) {
  provisioning::Wanted all{};
  for (const auto& [name, limit] : limits)
    if (const auto kind = provisioning::find_kind(name)) all[static_cast<size_t>(*kind)] = limit;
  return all;
}

bool is_of(const Vdevice& vdevice, const BudgetKey& budget) {
  return (budget.scope == Scope::kTenant ? vdevice.tenant : vdevice.parent) == budget.name;
}

std::optional<std::string> excess_of(const BudgetKey& key, const Budget& budget,
                                     const std::vector<const Vdevice*>& vdevices) {
  const auto ceilings = by_kind(budget.ceilings);
  for (const Kind kind : provisioning::all_kinds()) {
    const auto most = provisioning::Budget::most(ceilings, budget.overcommit, kind);
    const std::string name(provisioning::traits(kind).name);
    uint64_t given = 0;
    for (const Vdevice* its : vdevices) {
      const auto limit = its->quota.find(name);
      const uint64_t value = limit == its->quota.end() ? 0 : limit->second;
      given = provisioning::traits(kind).per_object() ? std::max(given, value) : given + value;
    }
    if (most && given > *most)
      return name + ": the limits of its vdevices reach " + std::to_string(given) +
             ", the ceiling allows " + std::to_string(*most);
    if (kind == Kind::kBandwidthMin && given > 0 && key.scope == Scope::kParent && !most)
      return name + ": a guarantee needs a ceiling of bandwidth";
  }
  return {};
}

}  // namespace

std::vector<Excess> excesses(const std::map<BudgetKey, Budget>& budgets,
                             const std::vector<Vdevice>& vdevices) {
  std::map<BudgetKey, Budget> all = budgets;
  for (const Vdevice& its : vdevices) all.try_emplace({Scope::kParent, its.parent});
  std::vector<Excess> found;
  for (const auto& [key, budget] : all) {
    std::vector<const Vdevice*> members;
    for (const Vdevice& its : vdevices)
      if (is_of(its, key)) members.push_back(&its);
    if (auto sentence = excess_of(key, budget, members))
      found.push_back({key, name_of(key) + ": quota " + *sentence});
  }
  return found;
}

}  // namespace vrdma::cli::apply
