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
    const auto since = count_.collect(block_, now_);
    total_.requests += since.all.requests;
    total_.bytes += since.all.bytes;
    reads_.requests += since.reads.requests;
    reads_.bytes += since.reads.bytes;
    return total_;
  }

  ipc::QpBlock block_{};
  DirectCount count_;
  DirectCount::Clock::time_point now_{};
  Traffic total_, reads_;
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

TEST_F(TrafficTest, reads_are_a_part_of_all) {
  block_.direct_reads = 1;
  count_.begin(block_, now_);
  says(10, 100);
  block_.direct_reads = 4;
  block_.direct_read_bytes = 30;
  (void)after(nanoseconds(1000));
  EXPECT_EQ(reads_.requests, 3U);
  EXPECT_EQ(reads_.bytes, 30U);
  says(11, 101);
  block_.direct_reads = block_.direct_read_bytes = UINT64_MAX;
  (void)after(nanoseconds(1000));
  EXPECT_EQ(reads_.requests, 4U);
  EXPECT_EQ(reads_.bytes, 31U);
}

TEST_F(TrafficTest, each_port_counts_what_passes_it) {
  PortTraffic here, there;
  PortTraffic::exchange(here, &there, {5, 500}, {2, 300});
  here.send(7, true);
  there.receive(7, true);
  EXPECT_EQ(here.sent.packets(), 6U);
  EXPECT_EQ(here.sent.bytes, 207U);
  EXPECT_EQ(here.sent.multicast, 1U);
  EXPECT_EQ(here.received.packets(), 2U);
  EXPECT_EQ(here.received.bytes, 300U);
  EXPECT_EQ(there.received.packets(), 6U);
  EXPECT_EQ(there.received.bytes, 207U);
  EXPECT_EQ(there.sent.packets(), 2U);
  EXPECT_EQ(there.sent.bytes, 300U);
  PortTraffic::exchange(here, nullptr, {1, 1}, {});
  EXPECT_EQ(here.sent.packets(), 7U) << "also where nobody knows the other end";
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
