#include "vrdmad/control/budgets.h"

#include <algorithm>
#include <initializer_list>

namespace vrdma::vrdmad {

using base::pass;
using base::Result;
using provisioning::Budget;
using provisioning::Kind;
using provisioning::Limits;
using provisioning::Setting;
using provisioning::traits;

namespace {

bool unlimited(const Limits& limits, Kind kind) { return of(limits, kind) == traits(kind).ceiling; }

// The limit of a vdevice: what is wanted, or the initial one within the budgets that there are.
uint64_t limit_of(const provisioning::Wanted& wanted, Kind kind,
                  std::initializer_list<const Budget*> budgets) {
  uint64_t initial = traits(kind).initial;
  for (const Budget* budget : budgets)
    if (budget != nullptr) initial = budget->capped(kind, initial);
  return wanted[static_cast<size_t>(kind)].value_or(initial);
}

}  // namespace

std::vector<Setting> Budgets::Allotment::settings() const {
  std::vector<Setting> settings;
  for (const Kind kind : provisioning::all_kinds())
    settings.push_back({std::string(traits(kind).name), of(limits_, kind)});
  return settings;
}

void Budgets::Allotment::bound(const Limits& granted) {
  granted_ = granted;
  for (const Kind kind : provisioning::all_kinds())
    of(limits_, kind) = std::min(of(limits_, kind), of(granted_, kind));
  from_tenant_.change(limits_);
  from_parent_.change(limits_);
}

Result<std::vector<Setting>> Budgets::Allotment::granted(
    const std::vector<Setting>& changes) const {
  auto wanted = provisioning::understand(changes);
  if (!wanted) return pass(std::move(wanted.error()));
  std::vector<Setting> settings = changes;
  for (auto& setting : settings) {
    const uint64_t most = of(granted_, *provisioning::find_kind(setting.kind));
    if (setting.limit == provisioning::kCeiling) setting.limit = most;
    if (setting.limit > most)
      return base::fail(EBUSY, "quota " + setting.kind + ": the vdevice's parent grants at most " +
                                   std::to_string(most));
  }
  return settings;
}

Result<Limits> Budgets::Allotment::changed(const std::vector<Setting>& changes) const {
  auto wanted = provisioning::understand(changes);
  if (!wanted) return pass(std::move(wanted.error()));
  Limits limits = limits_;
  for (const Kind kind : provisioning::all_kinds())
    of(limits, kind) = (*wanted)[static_cast<size_t>(kind)].value_or(of(limits, kind));
  return limits;
}

Result<void> Budgets::Allotment::check(const std::vector<Setting>& changes) const {
  auto limits = changed(changes);
  if (!limits) return pass(std::move(limits.error()));
  if (auto fits = from_tenant_.check(*limits); !fits) return fits;
  return from_parent_.check(*limits);
}

void Budgets::Allotment::change(const std::vector<Setting>& changes) {
  const auto limits = changed(changes);
  if (!limits) return;
  limits_ = *limits;
  from_tenant_.change(limits_);
  from_parent_.change(limits_);
}

void Budgets::Allotment::reserve(const std::vector<Setting>& changes) {
  auto limits = changed(changes);
  if (!limits) return;
  for (const Kind kind : provisioning::all_kinds())
    of(*limits, kind) = std::max(of(*limits, kind), of(limits_, kind));
  from_tenant_.change(*limits);
  from_parent_.change(*limits);
}

void Budgets::Allotment::place(size_t slot) {
  from_tenant_.place(slot);
  from_parent_.place(slot);
}

bool Budgets::Allotment::limited() const {
  return tenant_->deals() || parent_->deals() || of(limits_, Kind::kBandwidthMin) > 0 ||
         !unlimited(limits_, Kind::kBandwidth) || !unlimited(limits_, Kind::kMsgRate);
}

std::vector<Limit> Budgets::Allotment::limit_list() const {
  std::vector<Limit> list;
  for (const Kind kind : provisioning::all_kinds()) list.push_back({kind, of(limits_, kind)});
  return list;
}

std::vector<std::shared_ptr<provisioning::Pool>> Budgets::Allotment::pools() const {
  return {tenant_->pool(), parent_->pool()};
}

Budget* Budgets::find(Scope scope, const std::string& name) {
  const auto it = all(scope).find(name);
  return it != all(scope).end() ? it->second.get() : nullptr;
}

Result<Budget*> Budgets::at(Scope scope, const std::string& name) {
  if (Budget* const known = find(scope, name)) return known;
  const bool tenant = scope == Scope::kTenant;
  auto made = Budget::make(next_number_, (tenant ? "tenant " : "parent ") + name, !tenant);
  if (!made) return pass(std::move(made).error());
  Budget* const budget = numbers_[next_number_++] = made->get();
  all(scope).emplace(name, std::move(*made));
  return budget;
}

Result<Budgets::Allotment> Budgets::allot(const std::string& tenant, const std::string& parent,
                                          const std::vector<Setting>& quota) {
  auto wanted = provisioning::understand(quota);
  if (!wanted) return pass(std::move(wanted.error()));
  drop_unused();
  auto its_tenant = at(Scope::kTenant, tenant), its_parent = at(Scope::kParent, parent);
  for (auto* each : {&its_tenant, &its_parent})
    if (!*each) return pass(std::move(*each).error());
  Allotment allotment;
  allotment.tenant_ = *its_tenant;
  allotment.parent_ = *its_parent;
  for (const Budget* budget : {allotment.tenant_, allotment.parent_})
    budget->fill_defaults(*wanted);
  for (const Kind kind : provisioning::all_kinds())
    of(allotment.limits_, kind) = limit_of(*wanted, kind, {allotment.tenant_, allotment.parent_});
  allotment.from_tenant_ = allotment.tenant_->grant();
  allotment.from_parent_ = allotment.parent_->grant();
  const auto all = allotment.settings();
  if (auto fits = allotment.check(all); !fits) return pass(std::move(fits.error()));
  allotment.change(all);
  return allotment;
}

Result<uint64_t> Budgets::room(const std::string& tenant, const std::string& parent,
                               const std::vector<Setting>& quota) {
  auto wanted = provisioning::understand(quota);
  if (!wanted) return pass(std::move(wanted.error()));
  const std::initializer_list<const Budget*> budgets = {find(Scope::kTenant, tenant),
                                                        find(Scope::kParent, parent)};
  for (const Budget* budget : budgets)
    if (budget != nullptr) budget->fill_defaults(*wanted);
  provisioning::Limits limits{};
  for (const Kind kind : provisioning::all_kinds())
    of(limits, kind) = limit_of(*wanted, kind, budgets);
  uint64_t room = UINT64_MAX;
  for (const Budget* budget : budgets)
    if (budget != nullptr) room = std::min(room, budget->room(limits));
  return room;
}

uint64_t Budgets::initial(const std::string& tenant, const std::string& parent, Kind kind) {
  provisioning::Wanted wanted{};
  const std::initializer_list<const Budget*> budgets = {find(Scope::kTenant, tenant),
                                                        find(Scope::kParent, parent)};
  for (const Budget* budget : budgets)
    if (budget != nullptr) budget->fill_defaults(wanted);
  return limit_of(wanted, kind, budgets);
}

Result<void> Budgets::set(Scope scope, const std::string& name,
                          const provisioning::BudgetSpec& spec) {
  auto budget = at(scope, name);
  if (!budget) return pass(std::move(budget).error());
  return (*budget)->set(spec);
}

provisioning::BudgetSpec Budgets::spec(Scope scope, const std::string& name) {
  const Budget* const budget = find(scope, name);
  return budget != nullptr ? budget->spec() : provisioning::BudgetSpec{{}, {}, 100};
}

void Budgets::put_back(Scope scope, const std::string& name, const provisioning::BudgetSpec& spec) {
  if (Budget* const budget = find(scope, name)) budget->put_back(spec);
}

void Budgets::drop_unused() {
  std::erase_if(tenants_, [this](const auto& entry) {
    const bool unused = entry.second->grants() == 0 && !entry.second->is_set();
    if (unused) numbers_.erase(entry.second->number());
    return unused;
  });
}

bool Budgets::deal(uint64_t number, base::TimePoint now) {
  const auto it = numbers_.find(number);
  return it != numbers_.end() && it->second->dealer().deal(now);
}

bool Budgets::has(uint64_t number, size_t slot) {
  const auto it = numbers_.find(number);
  return it != numbers_.end() && it->second->dealer().has(slot);
}

void Budgets::clear(size_t slot) {
  for (const auto& [number, budget] : numbers_) budget->clear(slot);
}

std::map<std::string, const Budget*> Budgets::list(Scope scope) const {
  std::map<std::string, const Budget*> all;
  for (const auto& [name, budget] : scope == Scope::kTenant ? tenants_ : parents_)
    if (budget->grants() > 0 || budget->is_set()) all.emplace(name, budget.get());
  return all;
}

}  // namespace vrdma::vrdmad
