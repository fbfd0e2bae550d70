// Budgets of tenants and parents: sets, stores and shows them. Use by vdevices.
#include <algorithm>

#include "core/base/printable.h"
#include "vrdmad/control/daemon_record.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

Budgets::Scope to_scope(BudgetSpec::Scope scope) {
  return scope == BudgetSpec::Scope::kTenant ? Budgets::Scope::kTenant : Budgets::Scope::kParent;
}

provisioning::BudgetSpec to_spec(const BudgetSpec& spec) {
  return {to_settings(spec.defaults), to_settings(spec.ceilings), spec.overcommit, spec.no_default};
}

std::vector<QuotaSetting> from_settings(const std::vector<provisioning::Setting>& settings) {
  std::vector<QuotaSetting> quota;
  for (const auto& one : settings) quota.push_back({one.kind, one.limit});
  return quota;
}

BudgetSpec from_spec(const BudgetSpec& of, const provisioning::BudgetSpec& spec) {
  return {of.scope, of.name, from_settings(spec.defaults), from_settings(spec.ceilings),
          spec.overcommit};
}

// Adds rows of the worker and of the control thread; only one of them counts a kind.
std::vector<provisioning::Row> together(std::vector<provisioning::Row> rows,
                                        const std::vector<provisioning::Row>& more) {
  for (size_t i = 0; i < rows.size() && i < more.size(); ++i) {
    rows[i].used += more[i].used;
    rows[i].refused += more[i].refused;
  }
  return rows;
}

}  // namespace

Result<void> Daemon::restore_budgets() {
  auto all = store_.budgets();
  if (!all) return pass(std::move(all.error()));
  for (const auto& spec : *all)
    if (auto set = budgets_.set(to_scope(spec.scope), spec.name, to_spec(spec)); !set)
      return pass(std::move(set.error()), "restore");
  return {};
}

std::vector<BudgetInfo> Daemon::budgets(BudgetSpec::Scope scope) {
  std::vector<BudgetInfo> all;
  for (const auto& [name, budget] : budgets_.list(to_scope(scope))) {
    BudgetInfo& one = all.emplace_back();
    one.scope = scope;
    one.name = name;
    one.overcommit = budget->overcommit();
    one.vdevices = static_cast<uint32_t>(budget->grants());
    for (const auto& row : budget->rows())
      one.rows.push_back({std::string(provisioning::traits(row.kind).name), row.initial,
                          row.ceiling, row.given, row.used});
  }
  return all;
}

Result<BudgetInfo> Daemon::set_budget(const BudgetSpec& spec) {
  const std::lock_guard one_at_a_time(changes_);
  const auto scope = to_scope(spec.scope);
  provisioning::BudgetSpec before;
  auto begun = call([&]() -> Result<std::future<Result<void>>> {
    if (spec.scope == BudgetSpec::Scope::kTenant) {
      if (auto ok = check_group("the tenant", spec.name); !ok) return pass(std::move(ok.error()));
    } else if (std::none_of(outside_.parents.begin(), outside_.parents.end(),
                            [&](const auto& parent) { return parent->name() == spec.name; })) {
      return fail(ENODEV, "there is no parent '" + spec.name + "': see `vrdmactl parent list`");
    }
    before = budgets_.spec(scope, spec.name);
    if (auto set = budgets_.set(scope, spec.name, to_spec(spec)); !set)
      return pass(std::move(set.error()));
    return outside_.writer->write(from_spec(spec, budgets_.spec(scope, spec.name)));
  });
  if (!begun) return pass(std::move(begun.error()));
  auto stored = wait_for(std::move(*begun));
  return call([&]() -> Result<BudgetInfo> {
    if (!stored) {
      budgets_.put_back(scope, spec.name, before);
      return pass(std::move(stored.error()), "the budget is unchanged");
    }
    // Whether a rate must be shared may have changed.
    for (const auto& [id, record] : records_)
      if (WorkerEnd* const worker = workers_.find(record->domain))
        worker->send(SetLimits{id, 0, {}, record->allotment.limited()});
    for (auto& one : budgets(spec.scope))
      if (one.name == spec.name) return std::move(one);
    BudgetInfo nothing;
    nothing.scope = spec.scope;
    nothing.name = spec.name;
    return nothing;
  });
}

std::vector<BudgetInfo> Daemon::list_budgets(BudgetSpec::Scope scope) {
  return call([&] { return budgets(scope); });
}

void Daemon::set_entrance(const Record& record) {
  record.entrance->set_rate(loop_.now(), record.cm->rate(provisioning::Kind::kConnRate));
}

// From all ledgers of the vdevice.
std::vector<provisioning::Row> Daemon::quota_rows(const Record& record,
                                                  const VdeviceUse& use) const {
  auto rows = together(use.quota, record.cm->rows());
  if (rows.empty()) return rows;
  auto& row = rows[static_cast<size_t>(provisioning::Kind::kConnRate)];
  row.used = record.entrance->used(loop_.now());
  row.refused = record.entrance->closed();
  return rows;
}

}  // namespace vrdma::vrdmad
