#include "provisioning/shares.h"

#include <gtest/gtest.h>

#include <array>

namespace vrdma::provisioning {
namespace {

using std::chrono::seconds;

struct SharesOf1000 : testing::Test {
  std::shared_ptr<Shares> shares = std::make_shared<Shares>();
  base::TimePoint now{seconds(1000)};
  SharesOf1000() { shares->set_capacity(1000); }

  // The final rate of each member when all ask period after period.
  template <size_t N>
  std::array<double, N> settle(std::array<Shares::Member, N>& members,
                               const std::array<double, N>& wanted) {
    std::array<double, N> rates{};
    for (int i = 0; i < 200; ++i) {
      now += kPeriod;
      for (size_t m = 0; m < N; ++m) {
        if (wanted[m] == 0) continue;
        const double used = std::min(rates[m], wanted[m]);
        rates[m] = static_cast<double>(members[m].ask(now, used, wanted[m] > rates[m]));
      }
    }
    for (size_t m = 0; m < N; ++m) rates[m] = std::min(rates[m], wanted[m]);
    return rates;
  }
  static constexpr double kAll = 1e9;
};

TEST_F(SharesOf1000, AreEqualForThoseThatWantAll) {
  std::array members{shares->join(), shares->join(), shares->join(), shares->join()};
  for (const double rate : settle<4>(members, {kAll, kAll, kAll, kAll})) EXPECT_NEAR(rate, 250, 3);
}

TEST_F(SharesOf1000, KeepToEachOnesLeastAndMost) {
  std::array members{shares->join(), shares->join(), shares->join()};
  members[0].set(600, kUnbounded);
  members[1].set(0, 100);
  const auto rates = settle<3>(members, {kAll, kAll, kAll});
  EXPECT_NEAR(rates[0], 600, 3);
  EXPECT_NEAR(rates[1], 100, 3);
  EXPECT_NEAR(rates[2], 300, 3);
}

TEST_F(SharesOf1000, GiveWhatOneLeavesToTheOthers) {
  std::array members{shares->join(), shares->join(), shares->join()};
  members[0].set(500, kUnbounded);  // an unused guarantee reserves nothing
  auto rates = settle<3>(members, {0, kAll, kAll});
  EXPECT_NEAR(rates[1], 500, 5);
  EXPECT_NEAR(rates[2], 500, 5);
  rates = settle<3>(members, {50, kAll, kAll});
  EXPECT_NEAR(rates[0], 50, 1);
  EXPECT_GT(rates[1], 450);
  EXPECT_NEAR(rates[1], rates[2], 5);
  // A member that claims its guarantee gets it at once.
  now += kPeriod;
  EXPECT_GE(members[0].ask(now, 50, true), 499u);
}

TEST_F(SharesOf1000, NeverAddUpToMoreThanThereIs) {
  std::array members{shares->join(), shares->join(), shares->join()};
  members[0].set(900, kUnbounded);  // the guarantees exceed the capacity
  members[1].set(900, kUnbounded);
  const auto rates = settle<3>(members, {kAll, kAll, kAll});
  EXPECT_LE(rates[0] + rates[1] + rates[2], 1003);
  EXPECT_NEAR(rates[0], 500, 3);
  EXPECT_NEAR(rates[1], 500, 3);
}

TEST_F(SharesOf1000, WithoutACapacityAreUnbounded) {
  shares->set_capacity(kUnbounded);
  auto member = shares->join();
  EXPECT_EQ(member.ask(now, 1, true), kUnbounded);
  shares->set_capacity(10);
  EXPECT_EQ(member.ask(now, 1, true), 10u);
}

TEST_F(SharesOf1000, OutliveNobodyAndForgetWhoLeft) {
  auto stays = shares->join();
  {
    auto leaves = shares->join();
    (void)leaves.ask(now, 0, true);
    EXPECT_LE(stays.ask(now, 0, true), 500u);
  }
  now += kPeriod;
  EXPECT_EQ(stays.ask(now, 500, true), 1000u);
  shares.reset();
  EXPECT_EQ(stays.ask(now, 500, true), 1000u);
}

}  // namespace
}  // namespace vrdma::provisioning
