// From a file and what vrdmad has to the steps that make it as the file says. Pure.
//
// The order works without a detour: deletions give room and addresses; fabrics; budgets that grow;
// quotas that shrink; then creations and quotas that grow; last, budgets that shrink. A quota or a
// budget that both grows and shrinks takes two steps. After each step all limits are within the
// budgets, if they are at the end (budget_check.h).
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cli/apply/file.h"
#include "cli/apply/objects.h"

namespace vrdma::cli::apply {

struct PlanOptions {
  // Deletes and creates vdevices that differ in what cannot be changed.
  bool recreate = false;
  // Deletes vdevices of the file's set that are not in the file.
  bool prune = false;
};

enum class Action { kCreate, kChange, kRecreate, kDelete };

// What happens to one object, for people and programs.
struct Change {
  Action action{};
  std::string object;                // "vdev", "tenant", "parent", "fabric"
  std::string name;                  // of a vdevice: NETNS/NAME
  std::vector<std::string> details;  // "quota qp: 64, then 128"
  bool operator==(const Change&) const = default;
};

struct Delete {
  Existing vdevice;
};
struct Create {
  Vdevice vdevice;  // with all limits that its budgets would not give it at that moment
  std::string set;  // empty: no label
};
struct SetQuota {
  uint64_t id = 0;
  Limits to, from;  // of the same kinds
};
struct SetLabels {
  uint64_t id = 0;
  std::map<std::string, std::string> to, from;  // all but kSetLabel
};
struct SetBudget {
  BudgetKey key;
  Budget to, from;
};
struct SetFabric {
  std::string name;
  Fabric to, from;
};
struct Step {
  size_t change = 0;  // of Plan::changes
  std::variant<Delete, SetFabric, SetBudget, SetQuota, SetLabels, Create> what;
};

struct Plan {
  std::vector<Change> changes;
  std::vector<Step> steps;
  // Why an object of the file cannot be made as it says, by line. If there are any, the steps are
  // of no use.
  std::vector<Mistake> refusals;
};

[[nodiscard]] Plan plan(const File& file, const State& state, const PlanOptions& options);

// The limit of a vdevice that does not set one: Budgets::initial() of vrdmad.
[[nodiscard]] uint64_t inherited(const std::map<BudgetKey, Budget>& budgets, const Vdevice& vdevice,
                                 const std::string& kind);
// All limits of a vdevice of a file.
[[nodiscard]] Limits limits_of(const std::map<BudgetKey, Budget>& budgets, const Vdevice& vdevice);

}  // namespace vrdma::cli::apply
