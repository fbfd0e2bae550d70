#include "vrdmad/worker/cpu_pace.h"

#include <gtest/gtest.h>

#include <thread>

namespace vrdma::vrdmad {
namespace {

using provisioning::kCpuPercent;
using provisioning::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

const uint64_t kNone = provisioning::traits(Kind::kCpu).ceiling;

struct CpuPaces : testing::Test {
  std::shared_ptr<provisioning::Shares> tenant = std::make_shared<provisioning::Shares>();
  std::shared_ptr<CpuPace::Shown> shown = std::make_shared<CpuPace::Shown>();
  CpuPace pace{Rates{{}, {}, {tenant}}, shown};
  base::TimePoint now = base::Clock::steady().now() + seconds(1);

  // What it uses of `time` if it uses all that it may, in turns of `turn`.
  base::Duration saturate(base::Duration time, base::Duration turn) {
    const base::Duration before = pace.total();
    for (const auto end = now + time; now < end;) {
      const base::Duration wait = pace.wait(now);
      now += wait.count() > 0 ? wait : turn;
      if (wait.count() == 0) pace.spend(turn);
    }
    return pace.total() - before;
  }
};

TEST_F(CpuPaces, KeepToAPercentageOfAProcessor) {
  pace.set(10);
  const auto used = saturate(seconds(5), std::chrono::microseconds(50));
  EXPECT_GE(used, milliseconds(490));
  EXPECT_LE(used, milliseconds(560));
}

TEST_F(CpuPaces, MakeUpForTurnsThatTookLong) {
  pace.set(10);
  const auto used = saturate(seconds(5), milliseconds(3));
  EXPECT_GE(used, milliseconds(490));
  EXPECT_LE(used, milliseconds(560));
}

TEST_F(CpuPaces, CountAlsoWithoutALimit) {
  pace.set(kNone);
  EXPECT_EQ(saturate(seconds(1), milliseconds(1)), seconds(1));
}

TEST_F(CpuPaces, MayBeMoreThanOneProcessor) {
  pace.set(250);
  pace.spend(milliseconds(2500) + milliseconds(125));
  EXPECT_GT(pace.wait(now).count(), 0);
  EXPECT_EQ(pace.wait(now + milliseconds(1001)).count(), 0);
}

TEST_F(CpuPaces, HaveTheirPartOfWhatTheirTenantHas) {
  pace.set(kNone);
  tenant->set_capacity(20 * kCpuPercent);
  CpuPace sibling{Rates{{}, {}, {tenant}}};
  (void)sibling.wait(now);
  sibling.spend(seconds(1));
  base::Duration used{};
  for (const auto end = now + seconds(2); now < end; now += milliseconds(1)) {
    for (CpuPace* one : {&pace, &sibling})
      if (one->wait(now).count() == 0) {
        one->spend(milliseconds(1));
        if (one == &pace) used += milliseconds(1);
      }
  }
  EXPECT_GE(used, milliseconds(180));
  EXPECT_LE(used, milliseconds(420));
}

TEST_F(CpuPaces, AreSpentByManyThreads) {
  pace.set(10);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) {
        pace.spend(milliseconds(1));
        (void)pace.wait(now);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pace.total(), seconds(4));
  EXPECT_GT(pace.wait(now).count(), 0);
  EXPECT_GT(pace.wait(now + seconds(39)).count(), 0);  // all is paid, at a tenth
  EXPECT_EQ(pace.wait(now + seconds(41)).count(), 0);
}

TEST_F(CpuPaces, ReportWhatIsUsedInPercent) {
  pace.set(10);
  pace.spend(milliseconds(200));
  (void)pace.wait(now);
  EXPECT_EQ(shown->rate.waits, 1u);
  pace.spend(milliseconds(100));
  EXPECT_EQ(shown->percent(now + milliseconds(1000)), 30u) << "also what is not settled yet";
  EXPECT_EQ(shown->percent(now + milliseconds(2500)), 0u);
}

}  // namespace
}  // namespace vrdma::vrdmad
