#include "core/rdma/buffers.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

struct Asking final : Sender {
  int kicked = 0;
  void kick() override { ++kicked; }
  void link_changed() override {}
  void receive_posted() override {}
  [[nodiscard]] bool drained() const override { return true; }
};

struct BuffersOfOne : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Buffers buffers{*loop};
  Asking first, second;

  void SetUp() override { buffers.set_limit(100); }
};

TEST_F(BuffersOfOne, AreHeldUntilTheLastWhoUsesThemDropsThem) {
  Buffer some = buffers.make(60);
  Buffer more = buffers.make(60);
  EXPECT_EQ(some->size(), 60u);
  EXPECT_EQ(buffers.held(), 120u);
  EXPECT_EQ(buffers.make(1), nullptr);
  EXPECT_EQ(buffers.refused(), 1u);
  Buffer also = some;
  some.reset();
  EXPECT_EQ(buffers.held(), 120u);
  std::thread([dropped = std::move(also)] {}).join();
  also.reset();
  EXPECT_EQ(buffers.held(), 60u);
}

TEST_F(BuffersOfOne, AreWaitedForInALine) {
  Buffer all = buffers.make(1000, first);  // larger than the limit, and there is no other
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(buffers.make(1, first), nullptr);
  EXPECT_EQ(buffers.make(1, second), nullptr);
  test::run_for(*loop, std::chrono::milliseconds(20));
  EXPECT_EQ(first.kicked + second.kicked, 0);
  all.reset();
  ASSERT_TRUE(test::run_until(*loop, [&] { return first.kicked == 1; }));
  EXPECT_NE(buffers.make(1, first), nullptr);
  ASSERT_TRUE(test::run_until(*loop, [&] { return second.kicked == 1; }));
  EXPECT_NE(buffers.make(1, second), nullptr);
}

TEST_F(BuffersOfOne, AreNotWaitedForByWhoLeaves) {
  Buffer all = buffers.make(100);
  EXPECT_EQ(buffers.make(1, first), nullptr);
  EXPECT_EQ(buffers.make(1, second), nullptr);
  buffers.leave(first);
  all.reset();
  ASSERT_TRUE(test::run_until(*loop, [&] { return second.kicked == 1; }));
  EXPECT_EQ(first.kicked, 0);
}

TEST_F(BuffersOfOne, MayBeMadeWhenTheLimitGrows) {
  Buffer all = buffers.make(100);
  EXPECT_EQ(buffers.make(1, first), nullptr);
  buffers.set_limit(101);
  ASSERT_TRUE(test::run_until(*loop, [&] { return first.kicked == 1; }));
}

TEST(BuffersOfNobody, AreNotCounted) {
  Asking sender;
  EXPECT_EQ(make_buffer(nullptr, 7)->size(), 7u);
  EXPECT_EQ(make_buffer(nullptr, 7, sender)->size(), 7u);
}

// A hung thread drops what it has when the vdevice has long gone.
TEST(BuffersThatLast, OutliveTheirAccount) {
  auto loop = base::EventLoop::create().value();
  Buffer last;
  {
    Buffers buffers(*loop);
    last = buffers.make(10);
  }
  EXPECT_EQ(last->size(), 10u);
}

}  // namespace
}  // namespace vrdma::rdma
