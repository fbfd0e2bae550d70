// Processes that share a rate by their slots of a page, and control, on a simulated clock.
#include "provisioning/dealer.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/shared_page.h"

namespace vrdma::provisioning {
namespace {

constexpr double kAll = 1e9;
constexpr auto kIndex = static_cast<size_t>(Rate::kBandwidth);

struct Dealers : testing::Test {
  struct Process {
    Process(const std::shared_ptr<BudgetPage>& page, size_t its_slot)
        : slot(its_slot), claim(page, slot, Rate::kBandwidth, [this] { ++rings; }) {}
    size_t slot;
    int rings = 0;
    Claim claim;
    double wants = kAll;
    double rate = 0;
  };
  std::shared_ptr<BudgetPage> page = base::SharedPage<BudgetPage>::make("test").value().get();
  Dealer dealer{page};
  base::TimePoint now{std::chrono::seconds(1000)};
  std::vector<std::unique_ptr<Process>> processes;
  bool silent = false;  // control
  bool again = false;   // what deal() said last
  int deals = 0;

  Dealers() { dealer.set_capacity(Rate::kBandwidth, 1000); }
  Process& add(uint64_t least = 0, uint64_t most = kUnbounded) {
    processes.push_back(std::make_unique<Process>(page, processes.size() + 1));
    dealer.set_process(processes.back()->slot, 1, {{{least, most}, {}, {}}});
    return *processes.back();
  }
  [[nodiscard]] uint64_t granted(size_t slot) const {
    const auto& its = page->slots[slot].granted[kIndex];
    return its.until.get() > nanoseconds(now) ? its.rate.get() : 0;
  }
  [[nodiscard]] uint64_t all_granted() const {
    uint64_t sum = 0;
    for (size_t slot = 1; slot < 64; ++slot) sum += granted(slot);
    return sum;
  }
  // All that want something ask; control deals if a process rings, and while deal() says so.
  void step() {
    now += kPeriod;
    bool rings = false;
    for (auto& process : processes) {
      const int before = process->rings;
      if (process->wants > 0)
        process->rate = static_cast<double>(process->claim.ask(
            now, {std::min(process->rate, process->wants), process->wants > process->rate}));
      rings = rings || process->rings > before;
    }
    if (silent || (!rings && !again)) return;
    again = dealer.deal(now);
    ++deals;
    EXPECT_LE(all_granted(), 1010u);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
};

TEST_F(Dealers, GiveAllToTheOnlyProcessAndSleep) {
  const Process& only = add(100, 200);  // its vdevices have their bounds anyway
  steps(20);
  EXPECT_EQ(only.rate, 1000);
  EXPECT_EQ(only.rings, 0);
  EXPECT_EQ(deals, 0);
}

TEST_F(Dealers, GiveHalfToEachOfTwo) {
  const Process &one = add(), &other = add();
  steps(3);
  EXPECT_NEAR(one.rate, 500, 5);
  EXPECT_NEAR(other.rate, 500, 5);
  EXPECT_TRUE(again);
  const int rings = one.rings + other.rings;
  steps(50);
  EXPECT_EQ(one.rings + other.rings, rings) << "control deals anyway";
  EXPECT_NEAR(one.rate, 500, 5);
}

TEST_F(Dealers, GiveWhatAnIdleProcessLeavesToTheOther) {
  Process &one = add(), &other = add();
  steps(5);
  one.wants = 0;
  steps(13);
  EXPECT_EQ(other.rate, 1000);
  EXPECT_FALSE(again) << "only one asks";
  const int before = deals;
  steps(200);
  EXPECT_EQ(deals, before) << "control must sleep";
  EXPECT_EQ(other.rate, 1000) << "it keeps all without being dealt anything";
  EXPECT_EQ(granted(1), 0u);
  one.wants = kAll;
  steps(3);
  EXPECT_NEAR(one.rate, 500, 5);
  EXPECT_NEAR(other.rate, 500, 5);
}

TEST_F(Dealers, GiveWhatIsNotUsedToTheOthers) {
  const Process &one = add(), &other = add();
  processes[0]->wants = 100;
  steps(60);
  EXPECT_GE(one.rate, 100);
  EXPECT_GT(other.rate, 850);
}

TEST_F(Dealers, KeepToTheLeastAndTheMostOfEach) {
  const Process &one = add(600), &other = add(0, 100), &third = add();
  steps(5);
  EXPECT_NEAR(one.rate, 600, 6);
  EXPECT_NEAR(other.rate, 100, 1);
  EXPECT_NEAR(third.rate, 300, 3);
  dealer.set_process(1, 1, {{{0, kUnbounded}, {}, {}}});
  steps(3);
  EXPECT_NEAR(one.rate, 450, 5);
  EXPECT_NEAR(third.rate, 450, 5);
}

TEST_F(Dealers, NeverGrantMoreThanThereIs) {
  for (uint64_t i = 0; i < 40; ++i) add(i % 5 == 0 ? 100 : 0, i % 7 == 0 ? 50 : kUnbounded);
  for (uint64_t i = 0, random = 1; i < 2000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    auto& its = *processes[(random >> 33) % processes.size()];
    its.wants = (random >> 20) % 3 == 0 ? 0 : static_cast<double>((random >> 40) % 1500);
    step();
  }
  EXPECT_GT(deals, 1000);
}

TEST_F(Dealers, LeaveTheGuaranteesIfControlIsSilent) {
  const Process &one = add(300), &other = add();
  steps(5);
  silent = true;
  steps(8);
  EXPECT_NEAR(one.rate, 500, 5) << "the grant still holds";
  steps(4);
  EXPECT_EQ(one.rate, 300);
  EXPECT_EQ(other.rate, 1) << "0 would be unbounded";
  const int rings = one.rings;
  for (int i = 0; i < 50; ++i) {
    now += kPeriod / 10;
    (void)processes[0]->claim.ask(now, {0, true});
  }
  EXPECT_LE(one.rings, rings + 5) << "once in a period";
  silent = false;
  steps(3);
  EXPECT_NEAR(other.rate, 500, 5);
}

TEST_F(Dealers, BelieveNoLies) {
  add(0, 100);
  const Process& honest = add();
  processes[0]->wants = 0;
  auto& lies = page->slots[1].asked[kIndex];
  for (const uint64_t lie :
       {std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN()),
        std::bit_cast<uint64_t>(std::numeric_limits<double>::infinity()),
        std::bit_cast<uint64_t>(-1.0), UINT64_MAX, uint64_t{1}, uint64_t{0}, uint64_t{1} << 63}) {
    for (int i = 0; i < 30; ++i) {
      lies.used.set(lie);
      lies.eager.set(lie);
      lies.members.set(lie);
      lies.most.set(lie);
      lies.at.set(i % 3 == 0 ? lie : nanoseconds(now) + (lie >> i));
      step();
      if (i <= 3) continue;
      EXPECT_LE(granted(1), 100u) << lie;
      EXPECT_GE(honest.rate, 890) << lie;
    }
  }
}

TEST_F(Dealers, ForgetAProcessThatAskedInTheFuture) {
  add();
  const Process& honest = add();
  processes[0]->wants = 0;
  for (const uint64_t lie :
       {nanoseconds(now + std::chrono::hours(1)), UINT64_MAX, UINT64_MAX / 2}) {
    page->slots[1].asked[kIndex].at.set(lie);
    again = true;
    steps(20);
    EXPECT_EQ(honest.rate, 1000) << lie;
  }
}

TEST_F(Dealers, FreeWhatADeadProcessHad) {
  const Process &one = add(), &other = add(200);
  steps(5);
  EXPECT_TRUE(dealer.has(2));
  dealer.clear(2);
  EXPECT_FALSE(dealer.has(2));
  processes[1]->wants = 0;
  again = false;  // control need not be asked
  step();
  EXPECT_EQ(one.rate, 1000);
  EXPECT_EQ(page->slots[2].granted[kIndex].least.get(), 0u);
  EXPECT_EQ(page->slots[2].asked[kIndex].at.get(), 0u);
  EXPECT_EQ(processes[1]->claim.ask(now, {0, true}), 1u);
  EXPECT_EQ(other.slot, 2u);
}

TEST_F(Dealers, FollowTheCapacity) {
  const Process &one = add(), &other = add();
  steps(5);
  dealer.set_capacity(Rate::kBandwidth, 100);
  EXPECT_EQ(all_granted(), 0u);
  steps(3);
  EXPECT_NEAR(one.rate, 50, 1);
  EXPECT_NEAR(other.rate, 50, 1);
  dealer.set_capacity(Rate::kBandwidth, kUnbounded);
  EXPECT_EQ(processes[0]->claim.whole(), kUnbounded);
  EXPECT_FALSE(dealer.deal(now));
}

// An idle vdevice without a limit does not make the others of its process seem to want more.
TEST_F(Dealers, ReserveNothingAboveTheLimitsOfThoseWithWork) {
  dealer.set_process(1, 2, {});
  dealer.set_process(2, 1, {});
  bool rings = false;
  const auto shares = std::make_shared<Shares>(
      std::make_unique<Claim>(page, 1, Rate::kBandwidth, [&] { rings = true; }));
  Claim other(page, 2, Rate::kBandwidth, [&] { rings = true; });
  auto limited = shares->join(), idle = shares->join();
  limited.set(0, 100);
  uint64_t left = 0;
  for (int i = 0; i < 60; ++i) {
    now += kPeriod;
    EXPECT_LE(limited.ask(now, 100, false), 1000u);
    left = other.ask(now, {kAll, true});
    if (std::exchange(rings, false) || again) again = dealer.deal(now);
  }
  EXPECT_NEAR(static_cast<double>(left), 900, 1);
}

TEST_F(Dealers, WeighNoMoreThanTheVdevicesThatThereAre) {
  add();
  const Process& honest = add();
  processes[0]->wants = 0;
  auto& lies = page->slots[1].asked[kIndex];
  lies.eager.set(1);
  lies.members.set(UINT64_MAX);
  for (int i = 0; i < 10; ++i) {
    lies.at.set(nanoseconds(now + kPeriod));
    step();
  }
  EXPECT_NEAR(honest.rate, 500, 5);
}

// All vdevices with work have the same rate, wherever they are.
TEST_F(Dealers, WeighAProcessByItsMembersWithWork) {
  bool rings = false;
  const auto shares_of = [&](size_t slot, size_t vdevices) {
    dealer.set_process(slot, vdevices, {});
    return std::make_shared<Shares>(
        std::make_unique<Claim>(page, slot, Rate::kBandwidth, [&] { rings = true; }));
  };
  const auto one = shares_of(1, 5), other = shares_of(2, 1);
  std::vector<Shares::Member> members;
  for (int i = 0; i < 3; ++i) members.push_back(one->join());
  members.push_back(other->join());
  std::vector<double> rates(members.size());
  const auto run = [&](size_t asking) {
    for (int i = 0; i < 30; ++i) {
      now += kPeriod;
      for (size_t m = 0; m < asking; ++m)
        rates[m] = static_cast<double>(members[m].ask(now, rates[m], true));
      if (std::exchange(rings, false) || again) again = dealer.deal(now);
    }
  };
  run(4);
  for (const double rate : rates) EXPECT_NEAR(rate, 250, 3);
  run(3);
  for (size_t m = 0; m < 3; ++m) EXPECT_NEAR(rates[m], 1000.0 / 3, 5);
  dealer.set_capacity(Rate::kBandwidth, kUnbounded);
  EXPECT_EQ(members[0].ask(now, 0, true), kUnbounded);
}

}  // namespace
}  // namespace vrdma::provisioning
