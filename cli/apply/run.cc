#include "cli/apply/run.h"

#include <type_traits>

#include "provisioning/kind.h"

namespace vrdma::cli::apply {

namespace {

using base::Result;

template <class Rows>
void add(const Limits& limits, Rows* rows) {
  for (const auto& [kind, limit] : limits) {
    auto& row = *rows->Add();
    row.set_kind(kind);
    row.set_limit(limit);
  }
}

template <class T>
Result<void> outcome(Result<T> result) {
  if (!result) return base::pass(std::move(result).error());
  return {};
}

Result<void> take(api::Client& client, const Delete& step) {
  return client.delete_vdev("id:" + std::to_string(step.vdevice.id));
}

Result<void> take(api::Client& client, const Create& step) {
  v1::CreateVdevRequest request;
  const Vdevice& its = step.vdevice;
  request.set_name(its.name);
  request.set_netns(its.netns);
  request.set_netdev(its.netdev);
  request.set_parent(its.parent);
  request.set_tenant(its.tenant);
  request.set_fabric(its.fabric);
  add(its.quota, request.mutable_quota());
  for (const auto& one : its.allow) request.add_allow(one);
  for (const auto& one : its.addresses) request.add_addresses(one);
  request.set_no_direct(its.no_direct);
  request.set_gid_layout(its.gid_layout);
  request.mutable_labels()->insert(its.labels.begin(), its.labels.end());
  if (!step.set.empty()) (*request.mutable_labels())[kSetLabel] = step.set;
  return outcome(client.create_vdev(request));
}

Result<void> take(api::Client& client, const SetQuota& step) {
  v1::SetQuotaRequest request;
  request.set_name("id:" + std::to_string(step.id));
  add(step.to, request.mutable_quota());
  return outcome(client.set_quota(request));
}

Result<void> take(api::Client& client, const SetLabels& step) {
  v1::SetLabelsRequest request;
  request.set_name("id:" + std::to_string(step.id));
  request.mutable_set()->insert(step.to.begin(), step.to.end());
  for (const auto& [key, ignored] : step.from)
    if (!step.to.contains(key)) request.add_remove(key);
  return outcome(client.set_labels(request));
}

Result<void> take(api::Client& client, const SetBudget& step) {
  v1::SetBudgetRequest request;
  request.set_scope(step.key.scope == Scope::kTenant ? v1::TENANT : v1::PARENT);
  request.set_name(step.key.name);
  request.set_overcommit(step.to.overcommit);
  add(step.to.defaults, request.mutable_defaults());
  for (const auto& [kind, ignored] : step.from.defaults)
    if (!step.to.defaults.contains(kind)) request.add_no_default(kind);
  Limits ceilings = step.to.ceilings;
  for (const auto& [kind, ignored] : step.from.ceilings)
    ceilings.try_emplace(kind, provisioning::kCeiling);  // none
  add(ceilings, request.mutable_ceilings());
  return outcome(client.set_budget(request));
}

Result<void> take(api::Client& client, const SetFabric& step) {
  v1::SetFabricRequest request;
  request.set_name(step.name);
  request.set_reach(step.to.reach);
  auto& peers = *request.mutable_peers();
  for (const auto& prefix : step.to.peers) peers.add_prefixes(prefix);
  return outcome(client.set_fabric(request));
}

// What takes the step back.
Step opposite(const Step& step) {
  return std::visit(
      [&](const auto& what) -> Step {
        using T = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<T, Delete>)
          return {step.change, Create{what.vdevice.vdevice, what.vdevice.set}};
        else if constexpr (std::is_same_v<T, Create>)
          return step;  // it is the last one of its object
        else {
          T back = what;
          std::swap(back.to, back.from);
          return {step.change, std::move(back)};
        }
      },
      step.what);
}

Result<void> take(api::Client& client, const Step& step) {
  return std::visit([&](const auto& what) { return take(client, what); }, step.what);
}

bool is_gone(const base::Error& error) {
  return error.code() == ECONNRESET || error.code() == ETIMEDOUT || error.code() == ECONNREFUSED;
}

}  // namespace

Result<std::vector<Failure>> run(api::Client& client, const Plan& plan) {
  std::vector<Failure> failures(plan.changes.size());
  std::vector<std::vector<Step>> undo(plan.changes.size());
  for (const Step& step : plan.steps) {
    Failure& failure = failures[step.change];
    if (!failure.sentence.empty()) continue;
    auto taken = take(client, step);
    if (taken) {
      undo[step.change].push_back(opposite(step));
      continue;
    }
    if (is_gone(taken.error())) return base::pass(std::move(taken).error());
    failure.sentence = taken.error().message();
    for (auto back = undo[step.change].rbegin(); back != undo[step.change].rend(); ++back)
      if (auto undone = take(client, *back); !undone) {
        if (is_gone(undone.error())) return base::pass(std::move(undone).error());
        failure.sentence += "; and what was done cannot be undone: " + undone.error().message();
        failure.is_undone = false;
      }
  }
  return failures;
}

}  // namespace vrdma::cli::apply
