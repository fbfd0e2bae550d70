#include "transport/net/congestion.h"

#include <gtest/gtest.h>

namespace vrdma::transport::net {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Congested : testing::Test {
  base::TimePoint now{std::chrono::hours(1)};
  Congestion congestion;

  // Sends as much as it may for `span`, in pieces of 10 kB; returns bytes per second. Without a
  // limit the link takes 1 GB/s.
  double send_for(base::Duration span) {
    const base::TimePoint begin = now, end = now + span;
    uint64_t bytes = 0;
    while (now < end) {
      if (congestion.may_send(now)) {
        congestion.sent(10'000, now);
        bytes += 10'000;
        now += microseconds(10);
      } else {
        now = std::min(end, congestion.free_at());
      }
    }
    return static_cast<double>(bytes) / std::chrono::duration<double>(now - begin).count();
  }
};

TEST_F(Congested, HasNoLimitBeforeTheFirstNotification) {
  EXPECT_NEAR(send_for(milliseconds(50)), 1e9, 1e7);
  EXPECT_EQ(congestion.rate(), 0);
  EXPECT_EQ(congestion.burst(1024, 64), 64u);
}

TEST_F(Congested, HalvesTheRateThatWasMeasured) {
  send_for(milliseconds(50));
  congestion.notified(now);
  EXPECT_NEAR(congestion.rate(), 0.5e9, 0.1e9);
  const double limit = congestion.rate();
  EXPECT_NEAR(send_for(microseconds(900)), limit, limit / 10);
}

TEST_F(Congested, CutsOnceInAPeriod) {
  send_for(milliseconds(50));
  congestion.notified(now);
  const double once = congestion.rate();
  for (int i = 0; i < 10; ++i) congestion.notified(now += microseconds(50));
  EXPECT_EQ(congestion.rate(), once);
}

TEST_F(Congested, GoesToTheLeastRateUnderConstantMarks) {
  send_for(milliseconds(50));
  for (int i = 0; i < 100; ++i) {
    congestion.notified(now);
    now += milliseconds(1);
  }
  EXPECT_EQ(congestion.rate(), Congestion::kLeastRate);
  EXPECT_EQ(congestion.burst(4096, 64), 1u);
}

TEST_F(Congested, RecoversHalfOfTheWayInEachPeriod) {
  send_for(milliseconds(50));
  congestion.notified(now);
  const double cut = congestion.rate();
  send_for(milliseconds(5));
  EXPECT_NEAR(congestion.rate(), 2 * cut, cut / 10);
  send_for(milliseconds(20));
  EXPECT_GT(congestion.rate(), 2.2 * cut);
}

TEST_F(Congested, HurtsLessWhenMarksAreRare) {
  send_for(milliseconds(50));
  for (int i = 0; i < 20; ++i) {
    congestion.notified(now);
    send_for(milliseconds(20));
  }
  const double before = congestion.rate();
  congestion.notified(now);
  EXPECT_GT(congestion.rate(), 0.6 * before);
}

TEST_F(Congested, ForgetsAfterASecond) {
  send_for(milliseconds(50));
  congestion.notified(now);
  now += Congestion::kForgotten;
  EXPECT_TRUE(congestion.may_send(now));
  EXPECT_EQ(congestion.rate(), 0);
}

// A queue pair that was idle is not limited to what it sent while it was.
TEST_F(Congested, MeasuresWhatWasSentJustNow) {
  send_for(milliseconds(50));
  now += milliseconds(500);
  congestion.sent(100'000, now);
  now += milliseconds(1);
  congestion.notified(now);
  EXPECT_NEAR(congestion.rate(), 50e6, 10e6);
}

}  // namespace
}  // namespace vrdma::transport::net
