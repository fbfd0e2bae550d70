#include "cli/apply/plan.h"

#include <algorithm>

#include "cli/apply/budget_check.h"
#include "core/base/label.h"
#include "provisioning/kind.h"

namespace vrdma::cli::apply {

namespace {

using Budgets = std::map<BudgetKey, Budget>;

const Budget* find(const Budgets& budgets, const BudgetKey& key) {
  const auto it = budgets.find(key);
  return it != budgets.end() ? &it->second : nullptr;
}

uint64_t highest(const std::string& kind) {
  return provisioning::traits(*provisioning::find_kind(kind)).ceiling;
}

std::string text_of(const std::string& kind, uint64_t limit) {
  return limit == highest(kind) ? "max" : std::to_string(limit);
}
std::string text_of(const std::string& kind, const Limits& limits, const char* without) {
  const auto it = limits.find(kind);
  return it == limits.end() ? without : text_of(kind, it->second);
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
  return or_none(text);
}

std::string becomes(const std::string& what, const std::string& is, const std::string& wanted) {
  return what + ": " + is + ", then " + wanted;
}

// What differs and cannot be changed while the vdevice lives.
std::vector<std::string> lasting_differences(const Vdevice& is, const Vdevice& wanted) {
  std::vector<std::string> all;
  const auto compare = [&](const char* what, const std::string& one, const std::string& other) {
    if (one != other) all.push_back(becomes(what, one, other));
  };
  compare("netns", is.netns, wanted.netns);
  compare("netdev", is.netdev, wanted.netdev);
  compare("parent", is.parent, wanted.parent);
  compare("tenant", is.tenant.empty() ? "its own" : is.tenant,
          wanted.tenant.empty() ? "its own" : wanted.tenant);
  compare("fabric", is.fabric.empty() ? "its tenant's own" : is.fabric,
          wanted.fabric.empty() ? "its tenant's own" : wanted.fabric);
  compare("allow", joined(is.allow), joined(wanted.allow));
  compare("addresses", joined(is.addresses), joined(wanted.addresses));
  compare("no_direct", is.no_direct ? "true" : "false", wanted.no_direct ? "true" : "false");
  compare("gid_layout", is.gid_layout, wanted.gid_layout);
  return all;
}

std::vector<std::string> label_differences(const Vdevice& is, const Vdevice& wanted) {
  std::vector<std::string> all;
  std::map<std::string, std::string> keys = is.labels;
  keys.insert(wanted.labels.begin(), wanted.labels.end());
  const auto value = [](const Vdevice& of, const std::string& key) {
    const auto it = of.labels.find(key);
    return it == of.labels.end() ? std::string("none") : "'" + it->second + "'";
  };
  for (const auto& [key, ignored] : keys)
    if (value(is, key) != value(wanted, key))
      all.push_back(becomes("label " + key, value(is, key), value(wanted, key)));
  return all;
}

// What differs between all limits of a vdevice.
SetQuota quota_change(const Existing& is, const Limits& wanted) {
  SetQuota change{is.id, {}, {}};
  for (const auto& [kind, limit] : wanted)
    if (const auto its = is.vdevice.quota.find(kind);
        its != is.vdevice.quota.end() && its->second != limit) {
      change.to[kind] = limit;
      change.from[kind] = its->second;
    }
  return change;
}

// The part of it that grows, or that shrinks.
SetQuota part_of(const SetQuota& change, bool grows) {
  SetQuota part{change.id, {}, {}};
  for (const auto& [kind, limit] : change.to)
    if ((limit > change.from.at(kind)) == grows) {
      part.to[kind] = limit;
      part.from[kind] = change.from.at(kind);
    }
  return part;
}

// While vdevices change: with room for those before and after. A parent needs a ceiling of
// bandwidth as long as one of both has it, because guarantees do.
Budget both(const BudgetKey& key, const Budget& before, const Budget& after) {
  Budget interim = after;
  interim.overcommit = std::max(before.overcommit, after.overcommit);
  interim.ceilings.clear();
  for (const auto* one : {&before, &after})
    for (const auto& [kind, ceiling] : one->ceilings) {
      const bool in_both = before.ceilings.contains(kind) && after.ceilings.contains(kind);
      const bool needed = key.scope == Scope::kParent && kind == "bandwidth";
      if (in_both || needed) interim.ceilings[kind] = std::max(interim.ceilings[kind], ceiling);
    }
  return interim;
}

std::vector<std::string> details_of(const Budget& is, const Budget& wanted) {
  std::vector<std::string> all;
  const auto compare = [&](const char* what, const Limits& one, const Limits& other) {
    Limits kinds = one;
    kinds.insert(other.begin(), other.end());
    for (const auto& [kind, ignored] : kinds)
      if (const auto before = text_of(kind, one, "none"), after = text_of(kind, other, "none");
          before != after)
        all.push_back(becomes(std::string(what) + " " + kind, before, after));
  };
  compare("default", is.defaults, wanted.defaults);
  compare("ceiling", is.ceilings, wanted.ceilings);
  if (is.overcommit != wanted.overcommit)
    all.push_back(
        becomes("overcommit", std::to_string(is.overcommit), std::to_string(wanted.overcommit)));
  return all;
}

class Planner {
 public:
  Planner(const File& file, const State& state, const PlanOptions& options)
      : file_(file), state_(state), options_(options), final_(state.budgets) {}

  Plan plan() {
    plan_fabrics();
    plan_budgets();
    match();
    for (size_t i = 0; i < file_.vdevices.size(); ++i) plan_vdevice(file_.vdevices[i], matches_[i]);
    for (const Existing& one : state_.vdevices)
      if (!used_.contains(one.id)) plan_other(one);
    for (const auto& [budget, sentence] : excesses(final_, after_)) {
      const auto at = file_.budgets.find(budget);
      refuse(at != file_.budgets.end() ? at->second.line : 0, sentence);
    }
    // Networks of two fabrics may exclude each other.
    std::ranges::stable_partition(fabrics_, [](const Step& step) {
      return std::get<SetFabric>(step.what).to.reach == "host";
    });
    for (auto* steps :
         {&deletes_, &fabrics_, &raises_, &shrinks_, &creates_, &grows_, &labels_, &lowers_})
      for (auto& step : *steps) plan_.steps.push_back(std::move(step));
    std::ranges::stable_sort(plan_.refusals, {}, &Mistake::line);
    return std::move(plan_);
  }

 private:
  size_t add(Action action, std::string object, std::string name,
             std::vector<std::string> details) {
    plan_.changes.push_back({action, std::move(object), std::move(name), std::move(details)});
    return plan_.changes.size() - 1;
  }
  void refuse(Line line, std::string sentence) {
    plan_.refusals.push_back({line, std::move(sentence)});
  }

  void plan_fabrics() {
    for (const auto& [name, wanted] : file_.fabrics) {
      const auto it = state_.fabrics.find(name);
      const Fabric is = it != state_.fabrics.end() ? it->second : Fabric();
      if (is == wanted.value) continue;
      const auto text = [](const Fabric& of) {
        return of.peers.empty() ? "all" : joined(of.peers);
      };
      std::vector<std::string> details;
      if (is.reach != wanted.value.reach)
        details.push_back(becomes("reach", is.reach, wanted.value.reach));
      if (is.peers != wanted.value.peers)
        details.push_back(becomes("peers", text(is), text(wanted.value)));
      const size_t change = add(Action::kChange, "fabric", name, details);
      fabrics_.push_back({change, SetFabric{name, wanted.value, is}});
    }
  }

  void plan_budgets() {
    for (const auto& [key, wanted] : file_.budgets) {
      if (key.scope == Scope::kParent && !state_.parents.contains(key.name)) {
        refuse(wanted.line, "there is no parent '" + key.name + "': see `vrdmactl parent list`");
        continue;
      }
      const Budget* const known = find(state_.budgets, key);
      const Budget is = known != nullptr ? *known : Budget();
      final_[key] = interim_[key] = wanted.value;
      if (is == wanted.value) continue;
      const size_t change = add(Action::kChange, key.scope == Scope::kTenant ? "tenant" : "parent",
                                key.name, details_of(is, wanted.value));
      const Budget between = interim_[key] = both(key, is, wanted.value);
      if (between != is) raises_.push_back({change, SetBudget{key, between, is}});
      if (between != wanted.value)
        lowers_.push_back({change, SetBudget{key, wanted.value, between}});
    }
    for (const auto& [key, budget] : state_.budgets) interim_.try_emplace(key, budget);
  }

  // Which vdevice of vrdmad each one of the file is. One that the set created and that has left the
  // file has moved to another namespace, if the file has one of its name that does not exist.
  void match() {
    matches_.resize(file_.vdevices.size(), nullptr);
    std::map<std::string, const Existing*> by_name;
    for (const Existing& one : state_.vdevices) by_name.emplace(name_of(one.vdevice), &one);
    for (size_t i = 0; i < file_.vdevices.size(); ++i)
      if (const auto it = by_name.find(name_of(file_.vdevices[i].value)); it != by_name.end())
        used_.insert((matches_[i] = it->second)->id);
    std::multimap<std::string, const Existing*> left;
    for (const Existing& one : state_.vdevices)
      if (!used_.contains(one.id) && one.set == file_.set && one.held.empty())
        left.emplace(one.vdevice.name, &one);
    for (size_t i = 0; i < file_.vdevices.size(); ++i) {
      const auto it = left.find(file_.vdevices[i].value.name);
      if (matches_[i] != nullptr || it == left.end()) continue;
      used_.insert((matches_[i] = it->second)->id);
      left.erase(it);
    }
  }

  void plan_vdevice(const At<Vdevice>& at, const Existing* is) {
    const Vdevice& wanted = at.value;
    const std::string whose = "vdev '" + wanted.name + "' in netns '" + wanted.netns + "'";
    if (!state_.parents.contains(wanted.parent))
      return refuse(at.line, whose + ": there is no parent '" + wanted.parent +
                                 "': see `vrdmactl parent list`");
    const Limits limits = limits_of(final_, wanted);
    if (is == nullptr || !is->is_lost) {
      after_.push_back(wanted);
      after_.back().quota = limits;
    }
    if (is == nullptr) {
      create(at, add(Action::kCreate, "vdev", name_of(wanted), {}), limits);
      return;
    }
    if (!is->held.empty())
      return refuse(at.line, whose + " belongs to " + is->held + ": choose another name");
    if (auto lasting = lasting_differences(is->vdevice, wanted); !lasting.empty()) {
      if (!options_.recreate) {
        for (const auto& one : lasting)
          refuse(at.line, whose + ": " + one +
                              ": this cannot be changed; --recreate deletes the vdevice and makes "
                              "it again");
        return;
      }
      if (is->is_lost) {
        after_.push_back(wanted);
        after_.back().quota = limits;
      }
      add_sessions(*is, &lasting);
      const size_t change = add(Action::kRecreate, "vdev", name_of(wanted), std::move(lasting));
      // In the place of a lost one, vrdmad makes another, or leaves the lost one as it is.
      const bool is_replaced =
          is->is_lost && is->vdevice.name == wanted.name && is->vdevice.netns == wanted.netns;
      if (!is_replaced) deletes_.push_back({change, Delete{*is}});
      create(at, change, limits);
      return;
    }
    if (is->is_lost) return;  // vrdmad changes neither its limits nor its labels
    const SetQuota quota = quota_change(*is, limits);
    std::vector<std::string> details = label_differences(is->vdevice, wanted);
    const bool has_other_labels = !details.empty();
    if (has_other_labels && !has_room_for_own_label(at)) return;
    if (quota.to.empty() && !has_other_labels) return;
    for (const auto& [kind, limit] : quota.to)
      details.push_back(
          becomes("quota " + kind, text_of(kind, quota.from.at(kind)), text_of(kind, limit)));
    const size_t change = add(Action::kChange, "vdev", name_of(wanted), std::move(details));
    if (auto part = part_of(quota, false); !part.to.empty())
      shrinks_.push_back({change, std::move(part)});
    if (auto part = part_of(quota, true); !part.to.empty())
      grows_.push_back({change, std::move(part)});
    if (has_other_labels)
      labels_.push_back({change, SetLabels{is->id, wanted.labels, is->vdevice.labels}});
  }

  bool has_room_for_own_label(const At<Vdevice>& at) {
    if (at.value.labels.size() < base::kMaxLabels) return true;
    refuse(at.line, "vdev '" + at.value.name + "' has " + std::to_string(at.value.labels.size()) +
                        " labels: apply needs one of its own, so that it can have " +
                        std::to_string(base::kMaxLabels - 1));
    return false;
  }

  void create(const At<Vdevice>& at, size_t change, const Limits& limits) {
    if (!has_room_for_own_label(at)) return;
    Create made{at.value, file_.set};
    for (const auto& [kind, limit] : limits)
      if (inherited(interim_, at.value, kind) != limit) made.vdevice.quota[kind] = limit;
    creates_.push_back({change, std::move(made)});
  }

  // One that is not in the file.
  void plan_other(const Existing& one) {
    if (options_.prune && one.set == file_.set && one.held.empty()) {
      std::vector<std::string> details;
      add_sessions(one, &details);
      const size_t change = add(Action::kDelete, "vdev", name_of(one.vdevice), std::move(details));
      deletes_.push_back({change, Delete{one}});
      return;
    }
    if (!one.is_lost) after_.push_back(one.vdevice);
  }
  static void add_sessions(const Existing& of, std::vector<std::string>* details) {
    if (of.sessions > 0)
      details->push_back("programs that have it open, and lose it: " + std::to_string(of.sessions));
  }

  const File& file_;
  const State& state_;
  const PlanOptions options_;
  Budgets final_, interim_;               // all budgets at the end, and while vdevices change
  std::vector<const Existing*> matches_;  // of the file's vdevices; nullptr: none
  std::set<uint64_t> used_;               // ids of these
  std::vector<Vdevice> after_;            // all vdevices at the end, with all limits
  std::vector<Step> deletes_, fabrics_, raises_, shrinks_, creates_, grows_, labels_, lowers_;
  Plan plan_;
};

}  // namespace

uint64_t inherited(const Budgets& budgets, const Vdevice& vdevice, const std::string& kind) {
  const auto its_kind = *provisioning::find_kind(kind);
  uint64_t limit = provisioning::traits(its_kind).initial;
  const BudgetKey keys[]{{Scope::kTenant, vdevice.tenant}, {Scope::kParent, vdevice.parent}};
  for (const auto& key : keys) {
    const Budget* const budget = find(budgets, key);
    if (budget == nullptr) continue;
    if (const auto its = budget->defaults.find(kind); its != budget->defaults.end())
      return its->second;
    if (const auto most = budget->ceilings.find(kind);
        most != budget->ceilings.end() && !provisioning::is_dealt(its_kind))
      limit = std::min(limit, most->second);
  }
  return limit;
}

Limits limits_of(const Budgets& budgets, const Vdevice& vdevice) {
  Limits limits = vdevice.quota;
  for (const auto kind : provisioning::all_kinds()) {
    const std::string name(provisioning::traits(kind).name);
    if (!limits.contains(name)) limits[name] = inherited(budgets, vdevice, name);
  }
  return limits;
}

Plan plan(const File& file, const State& state, const PlanOptions& options) {
  return Planner(file, state, options).plan();
}

}  // namespace vrdma::cli::apply
