#include "vrdmad/control/budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::vrdmad {
namespace {

using provisioning::kCeiling;
using provisioning::Kind;
using Scope = Budgets::Scope;

struct BudgetsOfAHost : testing::Test {
  Budgets budgets;

  static uint64_t limit(const Budgets::Allotment& allotment, const std::string& kind) {
    for (const auto& setting : allotment.settings())
      if (setting.kind == kind) return setting.limit;
    return 0;
  }
  Budgets::Allotment allot(const std::string& tenant,
                           const std::vector<provisioning::Setting>& quota = {}) {
    auto allotment = budgets.allot(tenant, "soft", quota);
    EXPECT_TRUE(allotment) << allotment.error().message();
    return allotment ? std::move(*allotment) : Budgets::Allotment();
  }
};

TEST_F(BudgetsOfAHost, GiveWhatWasSaidOrTheNearestDefault) {
  ASSERT_TRUE(budgets.set(Scope::kTenant, "red", {{{"qp", 8}}, {{"cq", 5}}, 0}));
  ASSERT_TRUE(budgets.set(Scope::kParent, "soft", {{{"qp", 9}, {"mr", 10}}, {}, 0}));
  const auto said = allot("red", {{"qp", 7}, {"cq", 0}});
  EXPECT_EQ(limit(said, "qp"), 7u);
  const auto red = allot("red"), blue = allot("blue");
  EXPECT_EQ(limit(red, "qp"), 8u);
  EXPECT_EQ(limit(red, "mr"), 10u);
  EXPECT_EQ(limit(red, "cq"), 5u) << "an initial limit goes down to the ceiling";
  EXPECT_EQ(limit(blue, "qp"), 9u);
  EXPECT_EQ(limit(blue, "pd"), provisioning::traits(Kind::kPd).initial);
}

TEST_F(BudgetsOfAHost, SayHowManyMoreTheyWouldGive) {
  EXPECT_EQ(budgets.room("red", "soft", {{"qp", 6}}), UINT64_MAX);
  ASSERT_TRUE(budgets.set(Scope::kTenant, "red", {{{"qp", 3}}, {{"qp", 10}}, 0}));
  ASSERT_TRUE(budgets.set(Scope::kParent, "soft", {{}, {{"qp", 15}}, 0}));
  EXPECT_EQ(budgets.room("red", "soft", {{"qp", 6}}), 1u);
  EXPECT_EQ(budgets.room("red", "soft", {}), 3u) << "by the tenant's default";
  EXPECT_EQ(budgets.room("", "soft", {{"qp", 6}}), 2u) << "only the parent's is known";
  const auto red = allot("red", {{"qp", 6}});
  EXPECT_EQ(budgets.room("red", "soft", {{"qp", 6}}), 0u);
  EXPECT_EQ(budgets.room("blue", "soft", {{"qp", 3}}), 3u);
  EXPECT_EQ(budgets.room("red", "soft", {{"frogs", 1}}).error().code(), EINVAL);
}

TEST_F(BudgetsOfAHost, RefuseWhatEitherHasNotAndTakeItBack) {
  ASSERT_TRUE(budgets.set(Scope::kTenant, "red", {{}, {{"qp", 10}}, 0}));
  ASSERT_TRUE(budgets.set(Scope::kParent, "soft", {{}, {{"qp", 15}}, 0}));
  auto red = std::make_unique<Budgets::Allotment>(allot("red", {{"qp", 6}}));
  EXPECT_EQ(budgets.allot("red", "soft", {{"qp", 5}}).error().code(), EBUSY);
  EXPECT_EQ(budgets.allot("blue", "soft", {{"qp", 10}}).error().code(), EBUSY);
  auto blue = allot("blue", {{"qp", 9}});
  EXPECT_FALSE(blue.check({{"qp", 10}}));
  EXPECT_EQ(budgets.allot("red", "soft", {{"frogs", 1}}).error().code(), EINVAL);
  red.reset();
  EXPECT_TRUE(blue.check({{"qp", 15}}));
  blue.change({{"qp", 15}});
  EXPECT_FALSE(budgets.allot("red", "soft", {{"qp", 1}}));
}

TEST_F(BudgetsOfAHost, KnowWhoIsLimited) {
  auto red = allot("red");
  EXPECT_FALSE(red.limited());
  red.change({{"mr_rate", 5}, {"cpu", 10}});  // without effect on direct links
  EXPECT_FALSE(red.limited());
  for (const auto* kind : {"bandwidth", "msg_rate"}) {
    red.change({{kind, 1000}});
    EXPECT_TRUE(red.limited()) << kind;
    red.change({{kind, provisioning::traits(*provisioning::find_kind(kind)).ceiling}});
    EXPECT_FALSE(red.limited()) << kind;
  }
  ASSERT_TRUE(budgets.set(Scope::kParent, "soft", {{}, {{"bandwidth", 1000}}, 0}));
  EXPECT_TRUE(red.limited());
  ASSERT_TRUE(budgets.set(Scope::kParent, "soft", {{}, {{"bandwidth", kCeiling}}, 0}));
  EXPECT_FALSE(red.limited());
  ASSERT_TRUE(budgets.set(Scope::kTenant, "red", {{}, {{"msg_rate", 1000}}, 0}));
  EXPECT_TRUE(red.limited());
  ASSERT_TRUE(budgets.set(Scope::kTenant, "red", {{}, {{"msg_rate", kCeiling}, {"cpu", 50}}, 0}));
  EXPECT_FALSE(red.limited());
}

TEST_F(BudgetsOfAHost, ListWhomThereIsSomethingToSayOf) {
  EXPECT_TRUE(budgets.list(Scope::kTenant).empty());
  {
    const auto red = allot("red");
    EXPECT_EQ(budgets.list(Scope::kTenant).count("red"), 1u);
    EXPECT_EQ(budgets.list(Scope::kParent).at("soft")->grants(), 1u);
  }
  EXPECT_TRUE(budgets.list(Scope::kTenant).empty());
  ASSERT_TRUE(budgets.set(Scope::kTenant, "blue", {{{"qp", 1}}, {}, 0}));
  EXPECT_EQ(budgets.list(Scope::kTenant).size(), 1u);
}

}  // namespace
}  // namespace vrdma::vrdmad
