#include "vrdmad/control/netdev_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <vector>

namespace vrdma::vrdmad {
namespace {

using base::EventLoop;
using base::Result;

class NetdevSearchTest : public testing::Test {
 protected:
  void run(base::Duration time) {
    const auto stop = loop_->after(time, [this] { loop_->stop(); });
    loop_->run();
  }
  // Until `count` answers came.
  void run_until(size_t count) {
    const auto stop = loop_->after(std::chrono::seconds(20), [this] { loop_->stop(); });
    wanted_ = count;
    if (found_.size() < count) loop_->run();
  }
  NetdevSearch::Found found() {
    return [this](uint64_t id, const Result<std::string>& netdev) {
      found_.emplace_back(id, netdev ? *netdev : netdev.error().message());
      if (found_.size() == wanted_) loop_->stop();
    };
  }
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  std::vector<std::pair<uint64_t, std::string>> found_;
  size_t wanted_ = 0;
};

TEST_F(NetdevSearchTest, looks_once_for_several_changes) {
  std::atomic<int> looks = 0;
  NetdevSearch search(
      *loop_,
      [&](pid_t pid, const std::string& wanted) -> Result<std::string> {
        ++looks;
        return wanted + std::to_string(pid);
      },
      found());
  for (int i = 0; i < 10; ++i) search.want(7, 3, "eth");
  search.want(8, 4, "net");
  run_until(2);
  EXPECT_THAT(found_, testing::UnorderedElementsAre(std::pair{7, "eth3"}, std::pair{8, "net4"}));
  EXPECT_EQ(looks, 2);
}

TEST_F(NetdevSearchTest, a_namespace_that_changes_all_the_time_has_a_bounded_share) {
  std::atomic<uint64_t> looks = 0;
  NetdevSearch search(
      *loop_,
      [&](pid_t, const std::string&) -> Result<std::string> {
        ++looks;
        return base::fail(ENODEV, "none");
      },
      found());
  const base::TimePoint begun = base::Clock::steady().now();
  while (base::Clock::steady().now() - begun < std::chrono::seconds(1)) {
    search.want(7, 3, "");
    run(std::chrono::milliseconds(1));
  }
  // After 50, 100, 200, ... ms. However slow this host is, there are not more.
  const uint64_t settled =
      static_cast<uint64_t>((base::Clock::steady().now() - begun) / NetdevSearch::kSettled);
  EXPECT_LE(looks, std::bit_width(settled + 1) + 1U);
  EXPECT_GE(looks, 1U);
}

TEST_F(NetdevSearchTest, a_look_that_takes_long_stops_neither_the_loop_nor_the_end) {
  std::atomic<bool> looks = false, may_end = false;
  {
    NetdevSearch search(
        *loop_,
        [&](pid_t, const std::string&) -> Result<std::string> {
          looks = true;
          while (!may_end) std::this_thread::yield();
          return std::string("eth0");
        },
        found());
    search.want(7, 3, "");
    while (!looks) std::this_thread::yield();
    bool served = false;
    loop_->post([&] { served = true; });
    run(std::chrono::milliseconds(1));
    EXPECT_TRUE(served);
    may_end = true;
  }
  run(std::chrono::milliseconds(1));
  EXPECT_TRUE(found_.empty()) << "it is told after its end";
}

}  // namespace
}  // namespace vrdma::vrdmad
