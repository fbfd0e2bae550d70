#include "vrdmad/control/dealing.h"

#include <gtest/gtest.h>

#include "provisioning/claim.h"
#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::vrdmad {
namespace {

using provisioning::Claim;
using provisioning::Rate;
using Scope = Budgets::Scope;

// A parent with a vdevice in the processes of slots 1 and 2.
struct DealingToTwo : testing::Test {
  test::ManualClock clock;
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create(clock).value();
  Budgets budgets;
  Dealing dealing{*loop, budgets};
  Budgets::Allotment red = allot("red", 1), blue = allot("blue", 2);
  std::shared_ptr<provisioning::BudgetPage> page = red.parent().page().get();
  uint64_t number = red.parent().number();
  Claim one{page, 1, Rate::kBandwidth, [this] { dealing.rung(number, 1); }};
  Claim other{page, 2, Rate::kBandwidth, [this] { dealing.rung(number, 2); }};

  DealingToTwo() {
    EXPECT_TRUE(budgets.set(Scope::kParent, "soft", {{}, {{"bandwidth", 1000}}, 0}));
  }
  Budgets::Allotment allot(const std::string& tenant, size_t slot) {
    auto allotment = std::move(*budgets.allot(tenant, "soft", {}));
    allotment.place(slot);
    return allotment;
  }
  void run(std::chrono::milliseconds time) { clock.run(*loop, time); }
  uint64_t ask(Claim& claim) {
    return claim.ask(clock.now(), {1000, true, 1, provisioning::kUnbounded});
  }
  // Asks by both until one has what it should have, or for a second.
  bool gets(Claim& claim, uint64_t least, uint64_t most) {
    for (int i = 0; i < 100; ++i) {
      (void)ask(&claim == &one ? other : one);
      const uint64_t rate = ask(claim);
      if (rate >= least && rate <= most) return true;
      run(std::chrono::milliseconds(10));
    }
    return false;
  }
};

TEST_F(DealingToTwo, GoesOnWhileBothAskAndThenEnds) {
  EXPECT_FALSE(dealing.busy());
  EXPECT_TRUE(gets(one, 490, 510));
  EXPECT_TRUE(gets(other, 490, 510));
  EXPECT_TRUE(dealing.busy());
  run(std::chrono::seconds(1));
  EXPECT_FALSE(dealing.busy()) << "nobody asks";
}

TEST_F(DealingToTwo, FollowsLimitsThatChange) {
  EXPECT_TRUE(gets(one, 490, 510));
  red.change({{"bandwidth_min", 800}});
  EXPECT_TRUE(gets(one, 790, 810));
  red.change({{"bandwidth_min", 0}});
  blue.change({{"bandwidth", 100}});
  EXPECT_TRUE(gets(one, 890, 910));
  blue = {};
  budgets.clear(2);
  EXPECT_EQ(ask(one), 1000u);
}

TEST_F(DealingToTwo, IgnoresWhoHasNoPartOfTheBudget) {
  dealing.rung(number, 3);
  dealing.rung(number + 100, 1);
  dealing.rung(blue.tenant().number(), 1);
  EXPECT_FALSE(dealing.busy());
  dealing.rung(blue.tenant().number(), 2);
  EXPECT_TRUE(dealing.busy());
  run(std::chrono::milliseconds(30));
  EXPECT_FALSE(dealing.busy());
}

TEST_F(DealingToTwo, EndsWithTheBudget) {
  const uint64_t its = blue.tenant().number();
  dealing.rung(its, 2);
  blue = {};
  (void)allot("green", 1);  // forgets blue
  run(std::chrono::milliseconds(30));
  EXPECT_FALSE(dealing.busy());
  EXPECT_FALSE(budgets.has(its, 2));
}

}  // namespace
}  // namespace vrdma::vrdmad
