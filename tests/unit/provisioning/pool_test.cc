#include "provisioning/pool.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/shared_page.h"
#include "provisioning/ledger.h"

namespace vrdma::provisioning {
namespace {

std::shared_ptr<BudgetPage> page() {
  return base::SharedPage<BudgetPage>::make("test").value().get();
}

TEST(Pool, BoundsWhatSeveralLedgersUseTogether) {
  const auto tenant = std::make_shared<Pool>("tenant red", page(), kControlSlot),
             parent = std::make_shared<Pool>("parent soft", page(), kControlSlot);
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
  const auto pool = std::make_shared<Pool>("cgroup /red");
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
  Pool pool("tenant red", page(), kControlSlot);
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

// Control, and two workers that map its page.
struct PoolOfProcesses : testing::Test {
  base::SharedPage<BudgetPage> made = base::SharedPage<BudgetPage>::make("test").value();
  Pool control{"tenant red", made.get(), kControlSlot};
  Pool one{"tenant red", mapped(), 1}, last{"tenant red", mapped(), kBudgetSlots - 1};
  PoolOfProcesses() {
    control.admit(1);
    control.admit(kBudgetSlots - 1);
    control.set_ceiling(Kind::kQp, 10);
  }
  [[nodiscard]] std::shared_ptr<BudgetPage> mapped() const {
    return base::SharedPage<BudgetPage>::map(made.file().duplicate().value()).value().get();
  }
};

TEST_F(PoolOfProcesses, BoundsWhatAllUseTogether) {
  ASSERT_TRUE(control.take(Kind::kQp, 1));
  ASSERT_TRUE(one.take(Kind::kQp, 4));
  const auto refused = last.take(Kind::kQp, 6);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "quota qp of tenant red: 6 more wanted, 5 in use, the ceiling is 10");
  EXPECT_EQ(control.used(Kind::kQp), 5u) << "what was refused is not used";
  EXPECT_TRUE(last.take(Kind::kQp, 5));
  EXPECT_FALSE(one.take(Kind::kQp, 1));
  one.give_back(Kind::kQp, 3);
  EXPECT_TRUE(control.take(Kind::kQp, 3));
  EXPECT_EQ(last.used(Kind::kQp), 10u);
  EXPECT_TRUE(one.take(Kind::kMr, 1 << 30)) << "there is no ceiling";
}

TEST_F(PoolOfProcesses, LosesNothingThatADeadProcessHad) {
  ASSERT_TRUE(one.take(Kind::kQp, 7));
  ASSERT_TRUE(one.take(Kind::kMr, 7));
  ASSERT_TRUE(last.take(Kind::kQp, 1));
  control.clear(1);
  EXPECT_EQ(control.used(Kind::kQp), 1u);
  EXPECT_EQ(control.used(Kind::kMr), 0u);
  Pool next("tenant red", mapped(), 1);
  EXPECT_TRUE(next.take(Kind::kQp, 9));
  EXPECT_FALSE(next.take(Kind::kQp, 1));
}

TEST_F(PoolOfProcesses, IsNotUnlimitedByALie) {
  BudgetPage& page = *made;
  const auto lie = [&](uint64_t used) {
    page.slots[1].used[static_cast<size_t>(Kind::kQp)].set(used);
  };
  ASSERT_TRUE(control.take(Kind::kQp, 2));
  for (const uint64_t used : {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 2, uint64_t{1} << 63}) {
    lie(used);
    EXPECT_FALSE(last.take(Kind::kQp, 1)) << used;
    EXPECT_GE(control.used(Kind::kQp), used);
  }
  page.high.set(UINT64_MAX);  // there are no more slots than the page has
  lie(0);
  EXPECT_TRUE(last.take(Kind::kQp, 8));
  EXPECT_FALSE(last.take(Kind::kQp, 1));
}

TEST_F(PoolOfProcesses, KeepsToItsCeilingAmongProcesses) {
  control.set_ceiling(Kind::kMr, 100);
  std::atomic<int> most{0}, now{0};
  std::vector<std::thread> threads;
  for (Pool* pool : {&control, &one, &last})
    threads.emplace_back([&, pool] {
      for (int i = 0; i < 20'000; ++i) {
        if (!pool->take(Kind::kMr, 40)) continue;
        const int seen = now.fetch_add(40) + 40;
        int before = most.load();
        while (before < seen && !most.compare_exchange_weak(before, seen)) {
        }
        now.fetch_sub(40);
        pool->give_back(Kind::kMr, 40);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most.load(), 100);
  EXPECT_EQ(control.used(Kind::kMr), 0u);
}

TEST(BudgetPage, OccupiesMemoryOnlyForTheSlotsInUse) {
  const auto made = base::SharedPage<BudgetPage>::make("test").value();
  struct stat status {};
  ASSERT_EQ(::fstat(made.file().get(), &status), 0);
  EXPECT_GT(status.st_size, 256 << 10);
  EXPECT_LE(status.st_blocks * 512, 8 << 10);
}

}  // namespace
}  // namespace vrdma::provisioning
