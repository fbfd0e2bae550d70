#include "core/base/token_bucket.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Buckets : testing::Test {
  TokenBucket bucket;
  TimePoint now{seconds(1000)};
};

TEST_F(Buckets, BeginFullAndFillAtTheirRate) {
  bucket.set(10, 3);
  EXPECT_TRUE(bucket.take(now) && bucket.take(now) && bucket.take(now));
  EXPECT_FALSE(bucket.take(now));
  EXPECT_EQ(bucket.used(now), 3u);
  EXPECT_FALSE(bucket.take(now + milliseconds(99)));
  EXPECT_TRUE(bucket.take(now + milliseconds(100)));
  EXPECT_FALSE(bucket.take(now + milliseconds(100)));
  now += seconds(3600);
  EXPECT_EQ(bucket.used(now), 0u);
  EXPECT_FALSE(bucket.take(now, 4));
  EXPECT_TRUE(bucket.take(now, 3));
}

TEST_F(Buckets, WithoutARateNeverEnd) {
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(bucket.take(now, 1 << 30));
  bucket.spend(now, UINT64_MAX);
  EXPECT_EQ(bucket.wait(now), Duration(0));
  EXPECT_EQ(bucket.used(now), 0u);
}

TEST_F(Buckets, GiveCreditAndHaveItPaidBack) {
  bucket.set(1000, 100);
  EXPECT_EQ(bucket.wait(now), Duration(0));
  bucket.spend(now, 600);  // 500 of it as debt
  const Duration wait = bucket.wait(now);
  EXPECT_GE(wait, milliseconds(500));
  EXPECT_LE(wait, milliseconds(501));
  EXPECT_GT(bucket.wait(now + milliseconds(499)), Duration(0));
  EXPECT_EQ(bucket.wait(now + wait), Duration(0));
}

// A user that spends a piece whenever it may gets the rate, whatever the size of its pieces.
TEST_F(Buckets, KeepTheRateInTheLongRun) {
  for (const uint64_t piece : {1u, 1500u, 65536u, 3'000'000u}) {
    TokenBucket own;
    own.set(10'000'000, 500'000);
    TimePoint clock = now;
    const TimePoint end = now + milliseconds(200);
    uint64_t spent = 0;
    while (clock < end) {
      if (const Duration wait = own.wait(clock); wait.count() > 0) {
        clock += wait;
        continue;
      }
      own.spend(clock, piece);
      spent += piece;
      clock += std::chrono::nanoseconds(50);
    }
    EXPECT_LE(spent, 2'500'000 + piece) << piece;
    EXPECT_GE(spent, 1'990'000u) << piece;
  }
}

TEST_F(Buckets, KeepWhatIsOwedWhenTheRateChanges) {
  bucket.set(1000, 100);
  bucket.spend(now, 1100);
  bucket.change(now, 10'000, 100);
  const Duration wait = bucket.wait(now);
  EXPECT_GE(wait, milliseconds(100));
  EXPECT_LE(wait, milliseconds(101));
  bucket.change(now, 0, 0);
  EXPECT_EQ(bucket.wait(now), Duration(0));
  bucket.change(now, 1000, 100);  // starts again
  EXPECT_EQ(bucket.wait(now), Duration(0));
}

}  // namespace
}  // namespace vrdma::base
