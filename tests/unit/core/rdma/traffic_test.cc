#include "core/rdma/traffic.h"

#include <gtest/gtest.h>

namespace vrdma::rdma {
namespace {

using std::chrono::nanoseconds;

class TrafficTest : public testing::Test {
 protected:
  void says(uint64_t requests, uint64_t bytes) {
    block_.direct_requests = requests;
    block_.direct_bytes = bytes;
  }
  Traffic after(nanoseconds time) {
    now_ += time;
    count_.collect(block_, now_, &total_);
    return total_;
  }

  ipc::QpBlock block_{};
  DirectCount count_;
  DirectCount::Clock::time_point now_{};
  Traffic total_;
};

TEST_F(TrafficTest, what_a_program_adds_is_added_once) {
  says(5, 50);
  count_.begin(block_, now_);
  EXPECT_EQ(after(nanoseconds(1000)).requests, 0U) << "what stood there before is not its own";
  says(15, 150);
  EXPECT_EQ(after(nanoseconds(1000)).requests, 10U);
  EXPECT_EQ(after(nanoseconds(1000)).bytes, 100U);
}

TEST_F(TrafficTest, a_lie_is_bounded_by_the_time_it_took) {
  count_.begin(block_, now_);
  says(UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(after(nanoseconds(7)).requests, 7U);
  EXPECT_EQ(total_.bytes, 7000U);
  says(0, 0);
  EXPECT_EQ(after(nanoseconds(1000)).requests, 7U) << "a count that goes back";
  says(3, 3);
  EXPECT_EQ(after(nanoseconds(1000)).requests, 10U);
  says(100, 100);
  EXPECT_EQ(after(nanoseconds(-5)).requests, 10U) << "no time has passed";
}

TEST_F(TrafficTest, the_worker_counts_by_kind) {
  TrafficCounters counters;
  counters.count(verbs::QpType::kUc, 1);
  counters.count(verbs::QpType::kXrcInitiator, 2);
  counters.count(verbs::QpType::kUd, 4);
  counters.count(verbs::QpType::kRawPacket, 8);
  counters.count_failed(verbs::WcStatus::kRnrRetryExceeded);
  EXPECT_EQ(counters.connected.requests, 2U);
  EXPECT_EQ(counters.connected.bytes, 3U);
  EXPECT_EQ(counters.datagram.bytes, 4U);
  EXPECT_EQ(counters.packet.bytes, 8U);
  EXPECT_EQ(counters.direct.requests, 0U);
  EXPECT_EQ(counters.failed[13], 1U);
}

}  // namespace
}  // namespace vrdma::rdma
