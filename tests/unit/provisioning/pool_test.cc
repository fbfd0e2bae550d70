#include "provisioning/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "provisioning/ledger.h"

namespace vrdma::provisioning {
namespace {

TEST(Pool, BoundsWhatSeveralLedgersUseTogether) {
  const auto tenant = std::make_shared<Pool>("tenant red"),
             parent = std::make_shared<Pool>("parent soft");
  tenant->set_ceiling(Kind::kQp, 3);
  Ledger one, other;
  for (Ledger* ledger : {&one, &other}) {
    ledger->draw_from(parent);
    ledger->draw_from(tenant);
  }
  auto two = one.charge(Kind::kQp, 2);
  auto last = other.charge(Kind::kQp, 1);
  ASSERT_TRUE(two && last);
  const auto refused = other.charge(Kind::kQp, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ENOMEM);
  EXPECT_EQ(refused.error().message(),
            "quota qp of tenant red: 1 more wanted, 3 in use, the ceiling is 3");
  EXPECT_EQ(other.refused(Kind::kQp), 1u);
  EXPECT_EQ(parent->used(Kind::kQp), 3u);  // what the other pool refused was returned
  two->reset();
  EXPECT_EQ(tenant->used(Kind::kQp), 1u);
  EXPECT_TRUE(other.charge(Kind::kQp, 1));
}

TEST(Pool, FollowsChargesThatGrowShrinkAndOutliveTheirLedger) {
  const auto pool = std::make_shared<Pool>("tenant red");
  Charge kept;
  {
    Ledger ledger;
    ledger.draw_from(pool);
    kept = std::move(*ledger.charge(Kind::kMrBytes, 100));
    kept.absorb(std::move(*ledger.charge(Kind::kMrBytes, 50)));
    EXPECT_EQ(pool->used(Kind::kMrBytes), 150u);
    kept.shrink_to(20);
    const auto deep = ledger.charge(Kind::kCqe, 1000);  // a per-object kind
    EXPECT_EQ(pool->used(Kind::kCqe), 0u);
  }
  EXPECT_EQ(pool->used(Kind::kMrBytes), 20u);
  kept.reset();
  EXPECT_EQ(pool->used(Kind::kMrBytes), 0u);
}

TEST(Pool, KeepsToItsCeilingAmongThreads) {
  Pool pool("tenant red");
  pool.set_ceiling(Kind::kMr, 100);
  std::atomic<int> most{0}, now{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        if (!pool.take(Kind::kMr, 40)) continue;
        const int seen = now.fetch_add(40) + 40;
        int before = most.load();
        while (before < seen && !most.compare_exchange_weak(before, seen)) {
        }
        now.fetch_sub(40);
        pool.give_back(Kind::kMr, 40);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most.load(), 100);
  EXPECT_EQ(pool.used(Kind::kMr), 0u);
}

}  // namespace
}  // namespace vrdma::provisioning
