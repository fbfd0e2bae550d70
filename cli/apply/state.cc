#include "cli/apply/state.h"

#include <algorithm>

#include "cli/apply/file.h"
#include "provisioning/kind.h"

namespace vrdma::cli::apply {

namespace {

// Names of tenants and fabrics that no operator has given begin so.
bool is_private(const std::string& name) { return name.starts_with("vdev/"); }

// A kind that only a newer vrdmad has is left as it is.
void add_limit(const std::string& kind, uint64_t limit, Limits* limits) {
  if (const auto known = provisioning::find_kind(kind))
    (*limits)[kind] = std::min(limit, provisioning::traits(*known).ceiling);
}

base::Result<void> add_budgets(api::Client& client, v1::Scope of, Scope scope, State* state) {
  auto budgets = client.list_budgets(of);
  if (!budgets) return base::pass(std::move(budgets).error());
  for (const auto& one : *budgets)
    if (Budget its = budget(one); its != Budget())
      state->budgets[{scope, one.name()}] = std::move(its);
  return {};
}

}  // namespace

Existing existing(const v1::Vdev& vdev) {
  Existing one;
  one.id = vdev.id();
  one.sessions = vdev.sessions();
  one.is_lost = !vdev.lost().empty();
  if (vdev.containers_size() > 0)
    one.held = "containers";
  else if (vdev.end_with_owner())
    one.held = "process " + std::to_string(vdev.owner().pid());
  Vdevice& its = one.vdevice;
  its.name = vdev.name();
  its.netns = short_netns(vdev.netns());
  its.netdev = vdev.netdev();
  its.parent = vdev.parent();
  if (!is_private(vdev.tenant())) its.tenant = vdev.tenant();
  if (!is_private(vdev.fabric()) && vdev.fabric() != "tenant/" + vdev.tenant())
    its.fabric = vdev.fabric();
  for (const auto& row : vdev.quota()) add_limit(row.kind(), row.limit(), &its.quota);
  its.allow.insert(vdev.allowed().begin(), vdev.allowed().end());
  if (vdev.addresses_given())
    its.addresses.insert(vdev.addresses().begin(), vdev.addresses().end());
  its.no_direct = vdev.no_direct();
  its.gid_layout = vdev.gid_layout();
  for (const auto& [key, value] : vdev.labels())
    (key == kSetLabel ? one.set : its.labels[key]) = value;
  return one;
}

Budget budget(const v1::Budget& budget) {
  Budget its;
  its.overcommit = budget.overcommit();
  for (const auto& row : budget.rows()) {
    if (row.has_default_()) add_limit(row.kind(), row.default_(), &its.defaults);
    if (row.has_ceiling()) add_limit(row.kind(), row.ceiling(), &its.ceilings);
  }
  return its;
}

base::Result<State> ask(api::Client& client) {
  State state;
  auto vdevs = client.list_vdevs();
  if (!vdevs) return base::pass(std::move(vdevs).error());
  for (const auto& vdev : *vdevs) state.vdevices.push_back(existing(vdev));
  for (const auto& [of, scope] :
       {std::pair{v1::TENANT, Scope::kTenant}, {v1::PARENT, Scope::kParent}})
    if (auto added = add_budgets(client, of, scope, &state); !added)
      return base::pass(std::move(added).error());
  auto fabrics = client.list_fabrics();
  if (!fabrics) return base::pass(std::move(fabrics).error());
  for (const auto& one : *fabrics)
    if (const Fabric its{one.reach(), {one.peers().begin(), one.peers().end()}};
        its != Fabric() && !is_private(one.name()))
      state.fabrics[one.name()] = its;
  auto parents = client.list_parents();
  if (!parents) return base::pass(std::move(parents).error());
  for (const auto& one : *parents) state.parents.insert(one.name());
  return state;
}

}  // namespace vrdma::cli::apply
