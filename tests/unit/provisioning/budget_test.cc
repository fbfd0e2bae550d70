#include "provisioning/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vrdma::provisioning {
namespace {

using testing::HasSubstr;

Limits limits(Kind kind, uint64_t limit) {
  Limits limits{};
  of(limits, kind) = limit;
  return limits;
}
std::string why(const base::Result<void>& result) {
  return result ? "it was done" : result.error().message();
}

struct Tenant : testing::Test {
  std::unique_ptr<Budget> made = Budget::make(1, "tenant red", false).value();
  Budget& red = *made;
  // A grant with the limit, or nothing if it is refused.
  std::optional<Budget::Grant> give(Kind kind, uint64_t limit) {
    Budget::Grant grant = red.grant();
    if (!grant.check(limits(kind, limit))) return std::nullopt;
    grant.change(limits(kind, limit));
    return grant;
  }
};

TEST_F(Tenant, HandsOutNoMoreThanItsCeiling) {
  ASSERT_TRUE(red.set({{}, {{"qp", 100}}, 0}));
  auto one = give(Kind::kQp, 60);
  ASSERT_TRUE(one);
  EXPECT_FALSE(give(Kind::kQp, 41));
  auto other = give(Kind::kQp, 40);
  ASSERT_TRUE(other);
  EXPECT_EQ(why(other->check(limits(Kind::kQp, 41))),
            "tenant red: quota qp: its vdevices' limits would reach 101, the ceiling is 100 with "
            "an overcommitment of 100%");
  one.reset();
  EXPECT_TRUE(other->check(limits(Kind::kQp, 100)));
  EXPECT_TRUE(give(Kind::kMr, 1 << 20)) << "kinds without a ceiling are unlimited";
}

TEST_F(Tenant, HasRoomForWhatItWouldGrant) {
  EXPECT_EQ(red.room(limits(Kind::kQp, 10)), UINT64_MAX);
  ASSERT_TRUE(red.set({{}, {{"qp", 100}, {"cqe", 50}}, 0}));
  std::vector<Budget::Grant> all;
  EXPECT_EQ(red.room(limits(Kind::kQp, 30)), 3u);
  for (uint64_t left = 3; left > 0; --left) {
    EXPECT_EQ(red.room(limits(Kind::kQp, 30)), left);
    auto one = give(Kind::kQp, 30);
    ASSERT_TRUE(one);
    all.push_back(std::move(*one));
  }
  EXPECT_EQ(red.room(limits(Kind::kQp, 30)), 0u);
  EXPECT_FALSE(give(Kind::kQp, 30));
  EXPECT_EQ(red.room(limits(Kind::kQp, 0)), UINT64_MAX);
  EXPECT_EQ(red.room(limits(Kind::kCqe, 50)), UINT64_MAX);
  EXPECT_EQ(red.room(limits(Kind::kCqe, 51)), 0u);
  ASSERT_TRUE(red.set({{}, {}, 200}));
  EXPECT_EQ(red.room(limits(Kind::kQp, 30)), 3u) << "200 % of 100, of which 90 are given";
}

TEST_F(Tenant, OvercommitsAsFarAsItsPolicySays) {
  ASSERT_TRUE(red.set({{}, {{"qp", 100}, {"cqe", 50}}, 250}));
  const auto one = give(Kind::kQp, 200), other = give(Kind::kQp, 50);
  EXPECT_TRUE(one && other);
  EXPECT_FALSE(give(Kind::kQp, 1));
  EXPECT_FALSE(give(Kind::kCqe, 51)) << "per-object kinds cannot be overcommitted";
  EXPECT_TRUE(red.pool()->take(Kind::kQp, 100));
  EXPECT_FALSE(red.pool()->take(Kind::kQp, 1)) << "the ceiling bounds the use";
  EXPECT_EQ(red.set({{}, {}, 200}).error().code(), EBUSY);
  EXPECT_EQ(red.overcommit(), 250u);
}

TEST_F(Tenant, KeepsADefaultBelowItsCeiling) {
  EXPECT_EQ(
      why(red.set({{{"qp", 5}}, {{"qp", 3}}, 0})),
      "tenant red: quota qp: the default, 5, is above the ceiling, 3; give it another default, "
      "or raise the ceiling");
  ASSERT_TRUE(red.set({{{"qp", 5}}, {{"qp", 5}}, 0}));
  EXPECT_EQ(red.set({{}, {{"qp", 4}}, 0}).error().code(), EINVAL);
  EXPECT_TRUE(red.set({{{"bandwidth", 5}}, {{"bandwidth", 3}}, 0})) << "shared, and not given";
}

TEST_F(Tenant, KeepsACeilingAboveWhatIsGivenAndUsed) {
  const auto grant = give(Kind::kQp, 60);
  EXPECT_THAT(why(red.set({{}, {{"qp", 59}}, 0})), HasSubstr("reach 60, the ceiling is 59"));
  ASSERT_TRUE(red.set({{}, {{"qp", 60}}, 0}));
  ASSERT_TRUE(red.pool()->take(Kind::kMr, 8));
  const auto below = red.set({{}, {{"mr", 7}, {"qp", 70}}, 0});
  EXPECT_EQ(below.error().code(), EBUSY);
  EXPECT_EQ(why(below),
            "tenant red: quota mr: the ceiling cannot be 7, because the vdevices use 8");
  EXPECT_EQ(red.capped(Kind::kQp, 1000), 60u) << "all or nothing";
  EXPECT_TRUE(red.set({{}, {{"qp", kCeiling}}, 0})) << "max: none";
  EXPECT_EQ(red.capped(Kind::kQp, 1000), 1000u);
}

TEST_F(Tenant, HasDefaults) {
  ASSERT_TRUE(red.set({{{"qp", 8}, {"mr", 9}}, {}, 0}));
  Wanted wanted;
  wanted[static_cast<size_t>(Kind::kQp)] = 3;
  red.fill_defaults(wanted);
  EXPECT_EQ(wanted[static_cast<size_t>(Kind::kQp)], 3u);
  EXPECT_EQ(wanted[static_cast<size_t>(Kind::kMr)], 9u);
  EXPECT_EQ(wanted[static_cast<size_t>(Kind::kCq)], std::nullopt);
}

TEST_F(Tenant, ForgetsADefault) {
  ASSERT_TRUE(red.set({{{"qp", 8}, {"mr", 9}}, {}, 0}));
  EXPECT_THAT(why(red.set({{}, {}, 0, {"qps"}})),
              HasSubstr("default: there is no quota kind 'qps'"));
  ASSERT_TRUE(red.set({{}, {}, 0, {"qp", "cq"}}));
  Wanted wanted{};
  red.fill_defaults(wanted);
  EXPECT_FALSE(wanted[static_cast<size_t>(Kind::kQp)]);
  EXPECT_EQ(wanted[static_cast<size_t>(Kind::kMr)], 9u);
  ASSERT_TRUE(red.set({{{"mr", 7}}, {}, 0, {"mr"}}));
  EXPECT_EQ(red.spec().defaults[0].limit, 7u);
}

TEST_F(Tenant, RefusesNonsense) {
  for (const auto& spec :
       {BudgetSpec{{{"frogs", 1}}, {}, 0}, BudgetSpec{{}, {{"frogs", 1}}, 0},
        BudgetSpec{{}, {{"qp", 1u << 30}}, 0}, BudgetSpec{{}, {}, 99},
        BudgetSpec{{}, {{"bandwidth_min", 5}}, 0}, BudgetSpec{{}, {{"bandwidth", 0}}, 0}}) {
    const auto set = red.set(spec);
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().code(), EINVAL);
    EXPECT_THAT(why(set), HasSubstr("tenant red"));
  }
}

TEST_F(Tenant, TellsAllThatWasSet) {
  ASSERT_TRUE(red.set({{{"qp", 8}}, {{"mr", 9}}, 120}));
  ASSERT_TRUE(red.set({{{"mr", 1}}, {}, 0}));
  const BudgetSpec spec = red.spec();
  const auto twin = Budget::make(1, "tenant red", false).value();
  ASSERT_TRUE(twin->set(spec));
  ASSERT_EQ(spec.defaults.size(), 2u);
  EXPECT_EQ(twin->spec().defaults[1].kind, "qp");
  EXPECT_EQ(twin->spec().ceilings[0].limit, 9u);
  EXPECT_EQ(twin->overcommit(), 120u);
}

TEST(Parent, GuaranteesOutOfWhatItHasOnly) {
  const auto made = Budget::make(1, "parent soft", true).value();
  Budget& parent = *made;
  Budget::Grant one = parent.grant(), other = parent.grant();
  EXPECT_THAT(why(one.check(limits(Kind::kBandwidthMin, 1))), HasSubstr("needs a ceiling"));
  ASSERT_TRUE(parent.set({{}, {{"bandwidth", 1000}}, 500}));
  EXPECT_TRUE(parent.deals());
  ASSERT_TRUE(one.check(limits(Kind::kBandwidthMin, 600)));
  one.change(limits(Kind::kBandwidthMin, 600));
  EXPECT_FALSE(other.check(limits(Kind::kBandwidthMin, 401))) << "never overcommitted";
  EXPECT_TRUE(other.check(limits(Kind::kBandwidthMin, 400)));
  EXPECT_FALSE(parent.set({{}, {{"bandwidth", 599}}, 0}));
  EXPECT_THAT(why(parent.set({{}, {{"bandwidth", kCeiling}}, 0})),
              HasSubstr("are guaranteed 600 of a ceiling"));
  // A most is no guarantee.
  EXPECT_TRUE(other.check(limits(Kind::kBandwidth, 1u << 30)));
}

}  // namespace
}  // namespace vrdma::provisioning
