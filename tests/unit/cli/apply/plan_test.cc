#include "cli/apply/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "cli/apply/budget_check.h"
#include "provisioning/budget.h"

namespace vrdma::cli::apply {
namespace {

using provisioning::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// What vrdmad does with the steps, with the budgets that it has: each step either does all of it or
// says why not.
class Model {
 public:
  std::string take(const Step& step) {
    return std::visit([this](const auto& what) { return take(what); }, step.what);
  }
  State state() const {
    State state;
    state.parents = {"soft"};
    state.fabrics = fabrics_;
    for (const auto& [id, its] : vdevices_) {
      state.vdevices.push_back(its->existing);
      auto& quota = state.vdevices.back().vdevice.quota;
      for (const Kind kind : provisioning::all_kinds())
        quota[std::string(provisioning::traits(kind).name)] = of(its->limits, kind);
    }
    for (const auto& [key, budget] : budgets_) {
      Budget its;
      its.overcommit = budget->overcommit();
      for (const auto& row : budget->rows()) {
        const std::string kind(provisioning::traits(row.kind).name);
        if (row.initial) its.defaults[kind] = *row.initial;
        if (row.ceiling) its.ceilings[kind] = *row.ceiling;
      }
      if (its != Budget()) state.budgets[key] = its;
    }
    return state;
  }
  // As a container's hook or an operator.
  std::string add(const Vdevice& vdevice, const std::string& held) {
    const std::string why = take(Create{vdevice, ""});
    if (why.empty()) vdevices_.at(next_ - 1)->existing.held = held;
    return why;
  }

 private:
  struct Made {
    Existing existing;
    provisioning::Limits limits{};
    provisioning::Budget::Grant from_tenant, from_parent;
  };

  provisioning::Budget& at(const BudgetKey& key) {
    auto& budget = budgets_[key];
    if (budget == nullptr)
      budget =
          *provisioning::Budget::make(budgets_.size(), name_of(key), key.scope == Scope::kParent);
    return *budget;
  }
  static std::vector<provisioning::Setting> settings(const Limits& limits) {
    std::vector<provisioning::Setting> all;
    for (const auto& [kind, limit] : limits) all.push_back({kind, limit});
    return all;
  }

  std::string take(const Delete& step) {
    return vdevices_.erase(step.vdevice.id) == 1 ? "" : "there is no such vdevice";
  }
  std::string take(const Create& step) {
    for (const auto& [id, other] : vdevices_)
      if (name_of(other->existing.vdevice) == name_of(step.vdevice)) return "it exists";
    auto made = std::make_unique<Made>();
    auto wanted = *provisioning::understand(settings(step.vdevice.quota));
    // A vdevice without a tenant has one of its own.
    const BudgetKey tenant{Scope::kTenant, step.vdevice.tenant.empty()
                                               ? "own" + std::to_string(next_)
                                               : step.vdevice.tenant};
    auto& its_tenant = at(tenant);
    auto& its_parent = at({Scope::kParent, step.vdevice.parent});
    its_tenant.fill_defaults(wanted);
    its_parent.fill_defaults(wanted);
    for (const Kind kind : provisioning::all_kinds()) {
      const uint64_t initial =
          its_parent.capped(kind, its_tenant.capped(kind, provisioning::traits(kind).initial));
      of(made->limits, kind) = wanted[static_cast<size_t>(kind)].value_or(initial);
    }
    made->from_tenant = its_tenant.grant();
    made->from_parent = its_parent.grant();
    if (auto why = change(*made, made->limits); !why.empty()) return why;
    made->existing.id = next_;
    made->existing.vdevice = step.vdevice;
    made->existing.set = step.set;
    vdevices_[next_++] = std::move(made);
    return "";
  }
  static std::string change(Made& made, const provisioning::Limits& limits) {
    for (auto* grant : {&made.from_tenant, &made.from_parent})
      if (auto fits = grant->check(limits); !fits) return fits.error().message();
    made.limits = limits;
    made.from_tenant.change(limits);
    made.from_parent.change(limits);
    return "";
  }
  std::string take(const SetQuota& step) {
    Made& made = *vdevices_.at(step.id);
    provisioning::Limits limits = made.limits;
    for (const auto& [kind, limit] : step.to) of(limits, *provisioning::find_kind(kind)) = limit;
    return change(made, limits);
  }
  std::string take(const SetLabels& step) {
    vdevices_.at(step.id)->existing.vdevice.labels = step.to;
    return "";
  }
  std::string take(const SetBudget& step) {
    provisioning::BudgetSpec spec{settings(step.to.defaults), settings(step.to.ceilings),
                                  step.to.overcommit};
    for (const auto& [kind, ignored] : step.from.defaults) spec.no_default.push_back(kind);
    for (const auto& [kind, ignored] : step.from.ceilings)
      if (!step.to.ceilings.contains(kind)) spec.ceilings.push_back({kind, provisioning::kCeiling});
    auto set = at(step.key).set(spec);
    return set ? "" : set.error().message();
  }
  std::string take(const SetFabric& step) {
    fabrics_[step.name] = step.to;
    if (step.to == Fabric()) fabrics_.erase(step.name);
    return "";
  }

  std::map<BudgetKey, std::unique_ptr<provisioning::Budget>> budgets_;
  std::map<std::string, Fabric> fabrics_;
  std::map<uint64_t, std::unique_ptr<Made>> vdevices_;  // after the budgets, which they use
  uint64_t next_ = 1;
};

void run(Model& model, const Plan& plan) {
  for (const Step& step : plan.steps)
    EXPECT_EQ(model.take(step), "")
        << "step of " << plan.changes[step.change].object << " " << plan.changes[step.change].name;
}

Vdevice vdevice(const std::string& name, const std::string& netns = "red") {
  Vdevice vdevice;
  vdevice.name = name;
  vdevice.netns = netns;
  vdevice.netdev = "eth0";
  return vdevice;
}

File file_with(const std::vector<Vdevice>& vdevices) {
  File file;
  for (const auto& one : vdevices) file.vdevices.push_back({one, 10});
  return file;
}

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> all;
  for (const auto& one : plan.changes)
    all.push_back(std::to_string(static_cast<int>(one.action)) + one.name);
  return all;
}

std::vector<std::string> refusals(const Plan& plan) {
  std::vector<std::string> all;
  for (const auto& one : plan.refusals) all.push_back(one.sentence);
  return all;
}

TEST(ApplyPlan, what_is_missing_is_created_and_then_there_is_nothing_to_do) {
  Model model;
  Vdevice a = vdevice("a");
  a.tenant = "t";
  a.quota["qp"] = 7;
  File file = file_with({a, vdevice("b")});
  file.fabrics["f"] = {{"network"}, 1};
  file.budgets[{Scope::kTenant, "t"}] = {{{{"mr", 5}}, {{"mr", 10}}, 120}, 2};
  const Plan first = plan(file, model.state(), {});
  EXPECT_THAT(first.refusals, IsEmpty());
  EXPECT_THAT(names(first), ElementsAre("1f", "1t", "0red/a", "0red/b"));
  run(model, first);
  const Plan second = plan(file, model.state(), {});
  EXPECT_THAT(second.changes, IsEmpty());
  EXPECT_THAT(second.steps, IsEmpty());
  EXPECT_EQ(model.state().vdevices[0].set, "default");
}

TEST(ApplyPlan, a_quota_is_changed_in_place_and_goes_back_to_its_default) {
  Model model;
  Vdevice a = vdevice("a");
  a.quota["qp"] = 7;
  run(model, plan(file_with({a}), model.state(), {}));
  a.quota = {{"mr", 3}};
  const Plan change = plan(file_with({a}), model.state(), {});
  ASSERT_THAT(change.changes, SizeIs(1));
  EXPECT_THAT(change.changes[0].details,
              ElementsAre("quota mr: 131072, then 3", "quota qp: 7, then 1024"));
  run(model, change);
  EXPECT_THAT(plan(file_with({a}), model.state(), {}).changes, IsEmpty());
}

TEST(ApplyPlan, labels_change_on_the_living_vdevice) {
  Model model;
  Vdevice a = vdevice("a");
  a.labels = {{"stage", "test"}, {"team", "x"}};
  run(model, plan(file_with({a}), model.state(), {}));
  a.labels = {{"stage", "live"}, {"owner", "y"}};
  const Plan changed = plan(file_with({a}), model.state(), {});
  EXPECT_THAT(names(changed), ElementsAre("1red/a"));
  EXPECT_THAT(changed.changes[0].details,
              ElementsAre("label owner: none, then 'y'", "label stage: 'test', then 'live'",
                          "label team: 'x', then none"));
  run(model, changed);
  EXPECT_THAT(plan(file_with({a}), model.state(), {}).changes, IsEmpty());
  for (int i = 0; i < 14; ++i) a.labels["l" + std::to_string(i)] = "";
  EXPECT_THAT(refusals(plan(file_with({a}), model.state(), {})),
              ElementsAre(HasSubstr("has 16 labels: apply needs one of its own")));
}

TEST(ApplyPlan, what_cannot_be_changed_is_refused_and_named) {
  Model model;
  run(model, plan(file_with({vdevice("a")}), model.state(), {}));
  Vdevice a = vdevice("a");
  a.tenant = "t";
  a.fabric = "f";
  a.netdev = "eth1";
  a.allow = {"qp1"};
  a.addresses = {"10.0.0.0/8"};
  a.no_direct = true;
  a.gid_layout = "mlx5";
  const Plan refused = plan(file_with({a}), model.state(), {});
  EXPECT_THAT(
      refusals(refused),
      ElementsAre(HasSubstr(": netdev: eth0, then eth1: this cannot be changed; --recreate"),
                  HasSubstr(": tenant: its own, then t: "),
                  HasSubstr(": fabric: its tenant's own, then f: "),
                  HasSubstr(": allow: none, then qp1: "),
                  HasSubstr(": addresses: none, then 10.0.0.0/8: "),
                  HasSubstr(": no_direct: false, then true: "),
                  HasSubstr(": gid_layout: dense, then mlx5: ")));
  EXPECT_EQ(refused.refusals[0].line, 10u);
  const Plan recreated = plan(file_with({a}), model.state(), {.recreate = true});
  EXPECT_THAT(names(recreated), ElementsAre("2red/a"));
  EXPECT_THAT(recreated.steps, SizeIs(2));
  run(model, recreated);
  EXPECT_EQ(model.state().vdevices[0].vdevice.tenant, "t");
}

TEST(ApplyPlan, a_vdevice_of_the_set_moves_to_another_namespace_only_if_it_is_recreated) {
  Model model;
  run(model, plan(file_with({vdevice("a", "red")}), model.state(), {}));
  const File moved = file_with({vdevice("a", "blue")});
  EXPECT_THAT(refusals(plan(moved, model.state(), {})),
              ElementsAre(HasSubstr("netns: red, then blue")));
  run(model, plan(moved, model.state(), {.recreate = true}));
  ASSERT_THAT(model.state().vdevices, SizeIs(1));
  EXPECT_EQ(model.state().vdevices[0].vdevice.netns, "blue");
  // One that an operator made is another vdevice.
  Model other;
  ASSERT_EQ(other.add(vdevice("a", "red"), ""), "");
  run(other, plan(moved, other.state(), {}));
  EXPECT_THAT(other.state().vdevices, SizeIs(2));
}

TEST(ApplyPlan, only_prune_deletes_and_only_what_the_set_has_made) {
  Model model;
  ASSERT_EQ(model.add(vdevice("hand"), ""), "");
  ASSERT_EQ(model.add(vdevice("pod"), "containers"), "");
  File other = file_with({vdevice("other")});
  other.set = "other";
  run(model, plan(other, model.state(), {}));
  run(model, plan(file_with({vdevice("a"), vdevice("b")}), model.state(), {}));
  const File less = file_with({vdevice("a")});
  EXPECT_THAT(plan(less, model.state(), {}).changes, IsEmpty());
  EXPECT_THAT(names(plan(less, model.state(), {.prune = true})), ElementsAre("3red/b"));
}

TEST(ApplyPlan, what_containers_have_is_left_alone) {
  Model model;
  ASSERT_EQ(model.add(vdevice("pod"), "containers"), "");
  Vdevice same = vdevice("pod");
  same.quota["qp"] = 3;
  for (const bool recreate : {false, true})
    EXPECT_THAT(refusals(plan(file_with({same}), model.state(), {.recreate = recreate})),
                ElementsAre(HasSubstr("belongs to containers: choose another name")));
}

TEST(ApplyPlan, limits_beyond_a_ceiling_are_refused_before_anything_changes) {
  Model model;
  Vdevice hand = vdevice("hand");
  hand.tenant = "t";
  hand.quota["qp"] = 4;
  ASSERT_EQ(model.add(hand, ""), "");
  Vdevice a = vdevice("a");
  a.tenant = "t";
  a.quota["qp"] = 7;
  File file = file_with({a});
  file.budgets[{Scope::kTenant, "t"}] = {{{}, {{"qp", 10}}, 100}, 3};
  const Plan refused = plan(file, model.state(), {});
  EXPECT_THAT(refusals(refused),
              ElementsAre("tenant t: quota qp: the limits of its vdevices reach 11, the ceiling "
                          "allows 10"));
  EXPECT_EQ(refused.refusals[0].line, 3u);
  file.budgets[{Scope::kTenant, "t"}].value.overcommit = 110;
  EXPECT_THAT(plan(file, model.state(), {}).refusals, IsEmpty());
}

TEST(ApplyPlan, a_ceiling_sinks_after_what_is_below_it_and_rises_before) {
  Model model;
  Vdevice a = vdevice("a");
  a.tenant = "t";
  const auto file_of = [&](uint64_t limit, uint64_t ceiling) {
    a.quota["qp"] = limit;
    File file = file_with({a});
    file.budgets[{Scope::kTenant, "t"}] = {{{}, {{"qp", ceiling}}, 100}, 3};
    return file;
  };
  for (const auto& [limit, ceiling] :
       {std::pair<uint64_t, uint64_t>{30, 40}, {5, 10}, {30, 40}, {40, 40}, {1, 1}}) {
    const File file = file_of(limit, ceiling);
    run(model, plan(file, model.state(), {}));
    EXPECT_THAT(plan(file, model.state(), {}).changes, IsEmpty());
  }
}

TEST(ApplyPlan, two_vdevices_exchange_what_a_ceiling_allows) {
  Model model;
  Vdevice a = vdevice("a"), b = vdevice("b");
  a.tenant = b.tenant = "t";
  a.quota = b.quota = {{"qp", 5}, {"mr", 10}};
  b.quota = {{"qp", 10}, {"mr", 5}};
  File file = file_with({a, b});
  file.budgets[{Scope::kTenant, "t"}] = {{{}, {{"qp", 15}, {"mr", 15}}, 100}, 3};
  run(model, plan(file, model.state(), {}));
  std::swap(file.vdevices[0].value.quota, file.vdevices[1].value.quota);
  const Plan exchange = plan(file, model.state(), {});
  EXPECT_THAT(exchange.changes, SizeIs(2));
  EXPECT_THAT(exchange.steps, SizeIs(4));
  run(model, exchange);
  EXPECT_THAT(plan(file, model.state(), {}).changes, IsEmpty());
}

TEST(ApplyPlan, a_lost_vdevice_keeps_what_it_was_given) {
  State state;
  state.parents = {"soft"};
  Existing& lost = state.vdevices.emplace_back();
  lost.id = 3;
  lost.vdevice = vdevice("a");
  lost.vdevice.quota["qp"] = 4;
  lost.is_lost = true;
  Vdevice wanted = vdevice("a");
  wanted.quota["qp"] = 5;
  EXPECT_THAT(plan(file_with({wanted}), state, {}).changes, IsEmpty());
  wanted.netdev = "eth1";
  EXPECT_THAT(plan(file_with({wanted}), state, {}).refusals, SizeIs(1));
}

TEST(ApplyPlan, an_unknown_parent_is_refused) {
  Model model;
  Vdevice a = vdevice("a");
  a.parent = "mlx5_0";
  File file = file_with({a});
  file.budgets[{Scope::kParent, "mlx5_1"}] = {{}, 4};
  EXPECT_THAT(refusals(plan(file, model.state(), {})),
              ElementsAre(HasSubstr("there is no parent 'mlx5_1'"),
                          HasSubstr("there is no parent 'mlx5_0'")));
}

// Random files, of few names, kinds and values, so that they collide.
class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  int below(int n) { return std::uniform_int_distribution(0, n - 1)(generator_); }
  bool coin() { return below(2) == 0; }

  Limits limits(bool of_ceiling) {
    Limits all;
    for (const char* kind : {"qp", "mr", "cqe", "bandwidth", "bandwidth_min"})
      if (below(3) == 0 && !(of_ceiling && std::string(kind) == "bandwidth_min"))
        all[kind] = static_cast<uint64_t>(of_ceiling ? 8 + below(40) : 1 + below(30));
    return all;
  }
  Vdevice vdevice() {
    Vdevice its =
        apply::vdevice(std::string(1, static_cast<char>('a' + below(4))), coin() ? "red" : "blue");
    if (coin()) its.tenant = coin() ? "t" : "u";
    if (below(4) == 0) its.fabric = "f";
    if (below(6) == 0) its.netdev = "eth1";
    its.quota = limits(false);
    // Under small ceilings, vdevices of large defaults would not fit.
    for (const char* kind : {"qp", "mr", "cqe"}) its.quota.try_emplace(kind, 1 + below(8));
    return its;
  }
  File file() {
    File file;
    if (below(5) == 0) file.set = "other";
    for (int i = below(6); i > 0; --i) {
      const Vdevice one = vdevice();
      const bool there = std::any_of(file.vdevices.begin(), file.vdevices.end(), [&](auto& other) {
        return name_of(other.value) == name_of(one);
      });
      if (!there) file.vdevices.push_back({one, 1});
    }
    for (const auto& key : {BudgetKey{Scope::kTenant, "t"}, BudgetKey{Scope::kTenant, "u"},
                            BudgetKey{Scope::kParent, "soft"}})
      if (coin()) {
        Budget budget{{}, limits(true), static_cast<uint32_t>(100 + 50 * below(3))};
        for (const auto& [kind, limit] : limits(false))
          if (!budget.ceilings.contains(kind) || budget.ceilings[kind] >= limit)
            budget.defaults[kind] = limit;
        file.budgets[key] = {budget, 1};
      }
    if (coin())
      file.fabrics["f"] = {{coin() ? "network" : "host",
                            coin() ? std::set<std::string>{"10.0.0.0/8"} : std::set<std::string>()},
                           1};
    return file;
  }

 private:
  std::mt19937 generator_;
};

// What the file says is so, and all else is as it was.
void expect_as_said(const File& file, const State& before, const State& after,
                    const PlanOptions& options) {
  for (const auto& [key, at] : file.budgets) {
    const auto it = after.budgets.find(key);
    EXPECT_EQ(it != after.budgets.end() ? it->second : Budget(), at.value) << name_of(key);
  }
  for (const auto& [name, at] : file.fabrics) {
    const auto it = after.fabrics.find(name);
    EXPECT_EQ(it != after.fabrics.end() ? it->second : Fabric(), at.value) << name;
  }
  std::set<std::string> in_file;
  for (const auto& at : file.vdevices) {
    in_file.insert(name_of(at.value));
    const auto it = std::find_if(after.vdevices.begin(), after.vdevices.end(), [&](auto& one) {
      return name_of(one.vdevice) == name_of(at.value);
    });
    ASSERT_NE(it, after.vdevices.end()) << name_of(at.value);
    Vdevice is = it->vdevice, wanted = at.value;
    EXPECT_EQ(is.quota, limits_of(after.budgets, wanted)) << name_of(wanted);
    is.quota.clear();
    wanted.quota.clear();
    EXPECT_EQ(is, wanted);
  }
  for (const auto& one : before.vdevices) {
    if (in_file.contains(name_of(one.vdevice))) continue;
    const bool there = std::any_of(after.vdevices.begin(), after.vdevices.end(), [&](auto& other) {
      return other.id == one.id && other.vdevice == one.vdevice;
    });
    const bool ours = one.set == file.set && one.held.empty();
    EXPECT_TRUE(there == !ours || (ours && !options.prune)) << name_of(one.vdevice);
  }
}

TEST(ApplyPlan, random_files_become_true) {
  int made = 0, refused = 0;
  for (unsigned seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Model model;
    if (random.coin()) (void)model.add(random.vdevice(), random.coin() ? "containers" : "");
    for (int round = 0; round < 4; ++round) {
      const File file = random.file();
      const PlanOptions options{random.coin(), random.coin()};
      const State before = model.state();
      const Plan plan = apply::plan(file, before, options);
      if (!plan.refusals.empty()) {
        ++refused;
        continue;
      }
      // vrdmactl or vrdmad may be killed after any step; apply then continues.
      const size_t steps = plan.steps.size();
      const size_t cut = random.coin() ? static_cast<size_t>(random.below(int(steps) + 1)) : steps;
      Plan part = plan;
      part.steps.resize(cut, part.steps.empty() ? Step{} : part.steps.front());
      run(model, part);
      const Plan rest = apply::plan(file, model.state(), options);
      ASSERT_THAT(rest.refusals, IsEmpty());
      EXPECT_TRUE(cut < steps || rest.changes.empty());
      run(model, rest);
      EXPECT_THAT(apply::plan(file, model.state(), options).changes, IsEmpty());
      expect_as_said(file, before, model.state(), options);
      if (testing::Test::HasFailure()) return;
      made += steps > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(made, 60);
  EXPECT_GT(refused, 15);
}

}  // namespace
}  // namespace vrdma::cli::apply
