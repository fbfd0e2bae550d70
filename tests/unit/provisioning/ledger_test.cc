#include "provisioning/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace vrdma::provisioning {
namespace {

using testing::HasSubstr;

Ledger with_limits(const std::vector<Setting>& settings) {
  Ledger ledger;
  const auto set = ledger.set_limits(settings);
  EXPECT_TRUE(set) << set.error().message();
  return ledger;
}

TEST(Ledger, BeginsWithTheInitialLimitsAndNothingInUse) {
  const Ledger ledger;
  const auto rows = ledger.rows();
  ASSERT_EQ(rows.size(), kKindCount);
  for (const auto& row : rows) {
    EXPECT_EQ(row.used, 0u);
    EXPECT_EQ(row.limit, traits(row.kind).initial);
    EXPECT_EQ(row.refused, 0u);
  }
}

TEST(Ledger, ChargesUpToTheLimitAndTakesBack) {
  auto ledger = with_limits({{"qp", 2}});
  auto first = ledger.charge(Kind::kQp, 1);
  auto second = ledger.charge(Kind::kQp, 1);
  ASSERT_TRUE(first && second);
  const auto third = ledger.charge(Kind::kQp, 1);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ENOMEM);
  EXPECT_EQ(third.error().message(), "quota qp: 1 more wanted, 2 in use, the limit is 2");
  EXPECT_EQ(ledger.refused(Kind::kQp), 1u);
  EXPECT_EQ(ledger.used(Kind::kQp), 2u);
  first->reset();
  first->reset();
  EXPECT_EQ(ledger.used(Kind::kQp), 1u);
  EXPECT_TRUE(ledger.charge(Kind::kQp, 1));
  EXPECT_EQ(ledger.used(Kind::kQp), 1u);
}

TEST(Ledger, CountsBytesWithoutOverflow) {
  auto ledger = with_limits({{"mr_bytes", 4096}});
  const auto some = ledger.charge(Kind::kMrBytes, 4000);
  ASSERT_TRUE(some);
  EXPECT_FALSE(ledger.charge(Kind::kMrBytes, UINT64_MAX));
  EXPECT_FALSE(ledger.charge(Kind::kMrBytes, 97));
  EXPECT_TRUE(ledger.charge(Kind::kMrBytes, 96));
  EXPECT_TRUE(ledger.charge(Kind::kMrBytes, 0));
  EXPECT_EQ(ledger.used(Kind::kMrBytes), 4000u);
}

TEST(Ledger, BoundsEachObjectAlone) {
  auto ledger = with_limits({{"send_wr", 128}});
  auto small = ledger.charge(Kind::kSendWr, 16);
  auto large = ledger.charge(Kind::kSendWr, 128);
  const auto as_large = ledger.charge(Kind::kSendWr, 128);
  ASSERT_TRUE(small && large && as_large);
  const auto too_large = ledger.charge(Kind::kSendWr, 129);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().message(), "quota send_wr: 129 wanted, the limit is 128");
  EXPECT_EQ(ledger.used(Kind::kSendWr), 128u);
  large->reset();
  EXPECT_EQ(ledger.used(Kind::kSendWr), 128u) << "another object is as large";
}

TEST(Ledger, UseOfPerObjectMaximaFollowsTheLargest) {
  Ledger ledger;
  auto small = ledger.charge(Kind::kCqe, 16);
  {
    const auto large = ledger.charge(Kind::kCqe, 100);
    EXPECT_EQ(ledger.used(Kind::kCqe), 100u);
  }
  EXPECT_EQ(ledger.used(Kind::kCqe), 16u);
  small->reset();
  EXPECT_EQ(ledger.used(Kind::kCqe), 0u);
}

TEST(Ledger, RefusesLimitsBelowWhatIsInUse) {
  auto ledger = with_limits({{"qp", 8}, {"recv_wr", 64}});
  const auto qps = ledger.charge(Kind::kQp, 5);
  const auto depth = ledger.charge(Kind::kRecvWr, 32);
  auto set = ledger.set_limits({{"mr", 7}, {"qp", 4}});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code(), EBUSY);
  EXPECT_EQ(set.error().message(), "quota qp: the limit cannot be 4, because the vdevice uses 5");
  EXPECT_EQ(ledger.limit(Kind::kMr), traits(Kind::kMr).initial) << "all or nothing";
  set = ledger.set_limits({{"recv_wr", 31}});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().message(),
            "quota recv_wr: the limit cannot be 31, because the largest object has 32");
  EXPECT_TRUE(ledger.set_limits({{"qp", 5}, {"recv_wr", 32}}));
  EXPECT_FALSE(ledger.charge(Kind::kQp, 1));
}

TEST(Ledger, RefusesUnknownKindsTwiceNamedOnesAndWhatIsImpossible) {
  Ledger ledger;
  auto set = ledger.set_limits({{"qp", 7}, {"frogs", 1}});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code(), EINVAL);
  EXPECT_THAT(set.error().message(), HasSubstr("'frogs'"));
  EXPECT_THAT(set.error().message(), HasSubstr(kind_names()));
  EXPECT_EQ(ledger.limit(Kind::kQp), traits(Kind::kQp).initial);
  set = ledger.set_limits({{"qp", 7}, {"qp", 8}});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code(), EINVAL);
  set = ledger.set_limits({{"qp", 65537}});
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().message(), "quota qp: 65537 is above the maximum, 65536");
  EXPECT_TRUE(ledger.set_limits({{"qp", kCeiling}}));
  EXPECT_EQ(ledger.limit(Kind::kQp), 65536u);
}

TEST(Ledger, CanForbidAKind) {
  auto ledger = with_limits({{"mw", 0}, {"cqe", 0}});
  EXPECT_FALSE(ledger.charge(Kind::kMw, 1));
  EXPECT_FALSE(ledger.charge(Kind::kCqe, 1));
}

TEST(Charge, MovesWithTheLedgerAndMayOutliveIt) {
  Charge kept;
  {
    Ledger first = with_limits({{"pd", 1}});
    auto charge = first.charge(Kind::kPd, 1);
    Ledger second = std::move(first);
    EXPECT_EQ(second.used(Kind::kPd), 1u);
    kept = std::move(*charge);
    EXPECT_EQ(charge->amount(), 0u);
    EXPECT_EQ(kept.amount(), 1u);
    EXPECT_FALSE(second.charge(Kind::kPd, 1));
  }
  kept.reset();
  EXPECT_EQ(kept.amount(), 0u);
}

TEST(Charge, GivesBackWhatItIsAssignedOver) {
  Ledger ledger;
  auto first = ledger.charge(Kind::kMrBytes, 100);
  auto second = ledger.charge(Kind::kMrBytes, 7);
  *first = std::move(*second);
  EXPECT_EQ(ledger.used(Kind::kMrBytes), 7u);
}

}  // namespace
}  // namespace vrdma::provisioning
