#include "cli/apply/export.h"

#include <algorithm>
#include <vector>

#include "cli/apply/plan.h"
#include "core/base/hex.h"
#include "provisioning/kind.h"

namespace vrdma::cli::apply {

namespace {

// A basic string of TOML.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\';
    else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00" + base::hex_of({&c, 1});
      continue;
    }
    out += c;
  }
  return out + '"';
}

// A key of TOML, in quotes if it needs them.
std::string key(const std::string& text) {
  const bool bare = !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  return bare ? text : quoted(text);
}

std::string table(const std::vector<std::string>& entries) {
  std::string text;
  for (const auto& one : entries) text += (text.empty() ? "{ " : ", ") + one;
  return text + " }";
}

std::string written(const Limits& limits) {
  std::vector<std::string> entries;
  for (const auto kind : provisioning::all_kinds()) {  // in the order of `quota show`
    const auto its = limits.find(std::string(provisioning::traits(kind).name));
    if (its == limits.end()) continue;
    // TOML has no integers beyond 63 bits; no kind has such a limit but "max".
    const bool max = its->second == provisioning::traits(kind).ceiling;
    entries.push_back(its->first + " = " + (max ? "\"max\"" : std::to_string(its->second)));
  }
  return table(entries);
}

std::string written(const std::set<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + quoted(word);
  return "[" + text + "]";
}

std::string written(const Budget& budget) {
  std::string text;
  if (!budget.defaults.empty()) text += "default = " + written(budget.defaults) + "\n";
  if (!budget.ceilings.empty()) text += "ceiling = " + written(budget.ceilings) + "\n";
  if (budget.overcommit != 100) text += "overcommit = " + std::to_string(budget.overcommit) + "\n";
  return text;
}

std::string written(const Vdevice& its, const std::map<BudgetKey, Budget>& budgets) {
  std::string text = "[[vdev]]\nname = " + quoted(its.name) + "\nnetns = " + quoted(its.netns) +
                     "\nnetdev = " + quoted(its.netdev) + "\n";
  if (its.parent != kDefaultParent) text += "parent = " + quoted(its.parent) + "\n";
  if (!its.tenant.empty()) text += "tenant = " + quoted(its.tenant) + "\n";
  if (!its.fabric.empty()) text += "fabric = " + quoted(its.fabric) + "\n";
  Limits quota;
  for (const auto& [kind, limit] : its.quota)
    if (limit != inherited(budgets, its, kind)) quota[kind] = limit;
  if (!quota.empty()) text += "quota = " + written(quota) + "\n";
  if (!its.allow.empty()) text += "allow = " + written(its.allow) + "\n";
  if (!its.addresses.empty()) text += "addresses = " + written(its.addresses) + "\n";
  if (its.no_direct) text += "no_direct = true\n";
  if (its.gid_layout != kDefaultLayout) text += "gid_layout = " + quoted(its.gid_layout) + "\n";
  if (!its.labels.empty()) {
    std::vector<std::string> labels;
    for (const auto& [name, value] : its.labels)
      labels.push_back(key(name) + " = " + quoted(value));
    text += "labels = " + table(labels) + "\n";
  }
  return text;
}

}  // namespace

std::string written(const State& state) {
  std::string text = "# Written by `vrdmactl export`; `vrdmactl apply -f FILE` makes it so.\n";
  std::set<std::string> sets;
  for (const auto& one : state.vdevices)
    if (one.held.empty() && !one.set.empty()) sets.insert(one.set);
  if (sets.size() == 1 && *sets.begin() != kDefaultSet)
    text += "set = " + quoted(*sets.begin()) + "\n";
  for (const auto& [name, fabric] : state.fabrics) {
    text += "\n[fabric." + key(name) + "]\nreach = " + quoted(fabric.reach) + "\n";
    if (!fabric.peers.empty()) text += "peers = " + written(fabric.peers) + "\n";
  }
  for (const auto scope : {Scope::kParent, Scope::kTenant})
    for (const auto& [of, budget] : state.budgets)
      if (of.scope == scope)
        text += std::string(scope == Scope::kTenant ? "\n[tenant." : "\n[parent.") + key(of.name) +
                "]\n" + written(budget);
  for (const auto& one : state.vdevices)
    if (one.held.empty()) text += "\n" + written(one.vdevice, state.budgets);
  return text;
}

}  // namespace vrdma::cli::apply
