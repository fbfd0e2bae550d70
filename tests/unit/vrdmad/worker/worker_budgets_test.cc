#include "vrdmad/worker/worker_budgets.h"

#include <gtest/gtest.h>

#include "provisioning/ledger.h"

namespace vrdma::vrdmad {
namespace {

using provisioning::kControlSlot;
using provisioning::Kind;
using provisioning::Pool;

// A tenant with two worker processes.
struct BudgetsOfWorkers : testing::Test {
  WorkerBudgets::Page page = WorkerBudgets::Page::make("test").value();
  Pool control{"tenant red", page.get(), kControlSlot};
  WorkerBudgets one{1}, other{2};
  BudgetsOfWorkers() {
    control.admit(2);
    control.set_ceiling(Kind::kQp, 3);
  }
};

TEST_F(BudgetsOfWorkers, AreOneForAllVdevicesOfAProcess) {
  const auto pool = one.pool({7, "tenant red"}, page);
  EXPECT_EQ(one.pool({7, "tenant red"}, page), pool);
  EXPECT_NE(one.pool({8, "tenant blue"}, WorkerBudgets::Page::make("test").value()), pool);
  EXPECT_NE(other.pool({7, "tenant red"}, page), pool);
  EXPECT_EQ(one.pool({9, "tenant green"}, {}), nullptr);
}

TEST_F(BudgetsOfWorkers, BoundWhatTheVdevicesOfAllProcessesUse) {
  provisioning::Ledger red0, red1;
  red0.draw_from(one.pool({7, "tenant red"}, page));
  red1.draw_from(other.pool({7, "tenant red"}, page));
  const auto two = red0.charge(Kind::kQp, 2), last = red1.charge(Kind::kQp, 1);
  ASSERT_TRUE(two && last);
  EXPECT_EQ(red1.charge(Kind::kQp, 1).error().message(),
            "quota qp of tenant red: 1 more wanted, 3 in use, the ceiling is 3");
  EXPECT_EQ(control.used(Kind::kQp), 3u);
}

// A second pool in the same slot would not know what the first has taken.
TEST_F(BudgetsOfWorkers, LiveAsLongAsSomethingIsCharged) {
  provisioning::Charge kept;
  {
    provisioning::Ledger ledger;
    ledger.draw_from(one.pool({7, "tenant red"}, page));
    kept = std::move(*ledger.charge(Kind::kQp, 2));
  }
  ASSERT_TRUE(one.pool({7, "tenant red"}, page)->take(Kind::kQp, 1));
  EXPECT_EQ(control.used(Kind::kQp), 3u);
}

}  // namespace
}  // namespace vrdma::vrdmad
