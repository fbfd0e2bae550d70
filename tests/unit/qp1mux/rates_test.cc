#include "qp1mux/rates.h"

#include <gtest/gtest.h>

namespace vrdma::qp1mux {
namespace {

using std::chrono::milliseconds;

verbs::Gid host(uint32_t number) {
  verbs::Gid gid = verbs::Gid::unspecified(true);
  for (size_t i = 0; i < 4; ++i) gid.bytes[15 - i] = static_cast<uint8_t>(number >> 8 * i);
  return gid;
}

struct RatesTest : testing::Test {
  base::TimePoint time{std::chrono::hours(1)};
  Rates<verbs::Gid> rates;
  RatesTest() { rates.set(1000, 100); }
};

TEST_F(RatesTest, OfOneDoNotConcernAnother) {
  uint32_t taken = 0;
  for (int i = 0; i < 60'000; ++i) {  // in one second
    time += std::chrono::nanoseconds(16'667);
    taken += rates.take(time, host(1)) ? 1u : 0u;
    if (i % 100 == 0) {
      EXPECT_TRUE(rates.take(time, host(2))) << i;
    }
  }
  EXPECT_NEAR(taken, 1100, 2);
}

TEST_F(RatesTest, AreSharedByTheManyOnlyWhileTheyAreMany) {
  for (uint32_t i = 1; i <= Rates<verbs::Gid>::kMany + 50; ++i)
    EXPECT_TRUE(rates.take(time, host(i)));
  for (uint32_t i = 0; i < 50; ++i) EXPECT_TRUE(rates.take(time, host(0x10000 + i)));
  EXPECT_FALSE(rates.take(time, host(0x20000))) << "a bucket of its own";
  EXPECT_TRUE(rates.take(time, host(1)));
  time += std::chrono::seconds(2);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(rates.take(time, host(0x20000)));
  EXPECT_FALSE(rates.take(time, host(0x20000)));
  EXPECT_TRUE(rates.take(time, host(0x20001))) << "no bucket of its own";
}

TEST_F(RatesTest, AreUnlimitedByDefault) {
  Rates<verbs::Gid> unlimited;
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(unlimited.take(time, host(1)));
}

TEST_F(RatesTest, KnowAHostByItsIpv4AddressOrItsNetworkOfIpv6) {
  EXPECT_NE(host_of(host(1)), host_of(host(2)));
  verbs::Gid ipv6 = verbs::Gid::unspecified(false), neighbour = ipv6;
  ipv6.bytes[0] = neighbour.bytes[0] = 0xfd;
  neighbour.bytes[8] = 1;
  EXPECT_EQ(host_of(ipv6), host_of(neighbour));
  neighbour.bytes[7] = 1;
  EXPECT_NE(host_of(ipv6), host_of(neighbour));
}

}  // namespace
}  // namespace vrdma::qp1mux
