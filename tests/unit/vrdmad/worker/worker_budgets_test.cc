#include "vrdmad/worker/worker_budgets.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "provisioning/dealer.h"
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
  std::vector<uint64_t> rung;
  WorkerBudgets one{[this](uint64_t number) { rung.push_back(number); }};
  WorkerBudgets other{[](uint64_t) {}};
  BudgetsOfWorkers() {
    other.set_slot(2);
    control.admit(2);
    control.set_ceiling(Kind::kQp, 3);
  }
};

TEST_F(BudgetsOfWorkers, AreOneForAllVdevicesOfAProcess) {
  const auto pool = one.pool({7, "tenant red"}, page);
  EXPECT_EQ(one.pool({7, "tenant red"}, page), pool);
  EXPECT_NE(one.pool({8, "tenant blue"}, WorkerBudgets::Page::make("test").value()), pool);
  EXPECT_NE(other.pool({7, "tenant red"}, page), pool);
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

TEST_F(BudgetsOfWorkers, ShareTheirRates) {
  Rates red0, red1, none;
  one.add_rates({7, "tenant red"}, page, &red0);
  one.add_rates({7, "tenant red"}, page, &red1);
  one.add_rates({8, "tenant blue"}, {}, &none);
  ASSERT_EQ(red0.bandwidth.size() * red0.messages.size() * red0.cpu.size(), 1u);
  EXPECT_EQ(red0.bandwidth, red1.bandwidth);
  EXPECT_EQ(red0.cpu, red1.cpu);
  EXPECT_TRUE(none.bandwidth.empty() && none.messages.empty() && none.cpu.empty());
}

TEST_F(BudgetsOfWorkers, RingWhenARateIsFirstUsed) {
  provisioning::Dealer dealer(page.get());
  for (const size_t slot : {1, 2}) dealer.set_process(slot, 1, {});
  dealer.set_capacity(provisioning::Rate::kMessages, 1000);
  Rates rates;
  one.add_rates({7, "tenant red"}, page, &rates);
  auto bytes = rates.bandwidth[0]->join(), messages = rates.messages[0]->join();
  auto now = base::Clock::steady().now();
  EXPECT_EQ(bytes.ask(now, 0, true), provisioning::kUnbounded);
  EXPECT_EQ(rung, std::vector<uint64_t>());
  EXPECT_EQ(messages.ask(now, 0, true), 1u);
  EXPECT_EQ(rung, std::vector<uint64_t>{7});
  EXPECT_FALSE(dealer.deal(now));
  now += provisioning::kPeriod;
  EXPECT_EQ(messages.ask(now, 0, true), 1000u);
  EXPECT_EQ(rung, std::vector<uint64_t>{7});
}

// Such a thread has none of the descriptors by which it could wake the worker.
TEST_F(BudgetsOfWorkers, RingOnTheirOwnThreadOnly) {
  provisioning::Dealer dealer(page.get());
  for (const size_t slot : {1, 2}) dealer.set_process(slot, 1, {});
  dealer.set_capacity(provisioning::Rate::kCpu, 1000);
  Rates rates;
  one.add_rates({7, "tenant red"}, page, &rates);
  auto member = rates.cpu[0]->join();
  auto now = base::Clock::steady().now();
  std::thread([&] { EXPECT_EQ(member.ask(now, 0, true), 1u); }).join();
  EXPECT_EQ(rung, std::vector<uint64_t>());
  now += provisioning::kPeriod;
  EXPECT_EQ(member.ask(now, 0, true), 1u);
  EXPECT_EQ(rung, std::vector<uint64_t>{7});
}

}  // namespace
}  // namespace vrdma::vrdmad
