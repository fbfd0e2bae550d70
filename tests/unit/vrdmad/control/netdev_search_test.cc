#include "vrdmad/control/netdev_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <thread>
#include <vector>

#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::vrdmad {
namespace {

using base::EventLoop;
using base::Result;

// Work that lasts for a time of the clock.
class Later final : public Aside {
 public:
  explicit Later(EventLoop& loop) : loop_(loop) {}
  void run(std::function<void()> work) override {
    EXPECT_FALSE(runs_) << "two looks at a time";
    runs_ = true;
    over_ = loop_.after(lasts, [this, work = std::move(work)] {
      runs_ = false;
      work();
    });
  }
  base::Duration lasts = std::chrono::milliseconds(1);

 private:
  EventLoop& loop_;
  bool runs_ = false;
  EventLoop::Timer over_;
};

class NetdevSearchTest : public testing::Test {
 protected:
  NetdevSearch::Found found() {
    return [this](uint64_t id, const Result<std::string>& netdev) {
      found_.emplace_back(id, netdev ? *netdev : netdev.error().message());
    };
  }
  void run(base::Duration time) { clock_.run(*loop_, time); }

  test::ManualClock clock_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::create(clock_).value();
  Later aside_{*loop_};
  std::vector<std::pair<uint64_t, std::string>> found_;
};

TEST_F(NetdevSearchTest, looks_once_for_several_changes) {
  int looks = 0;
  NetdevSearch search(
      *loop_, aside_,
      [&](pid_t pid, const std::string& wanted) -> Result<std::string> {
        ++looks;
        return wanted + std::to_string(pid);
      },
      found());
  for (int i = 0; i < 10; ++i) search.want(7, 3, "eth");
  search.want(8, 4, "net");
  run(std::chrono::milliseconds(49));
  EXPECT_EQ(looks, 0);
  run(std::chrono::milliseconds(4));
  EXPECT_THAT(found_, testing::ElementsAre(std::pair{7, "eth3"}, std::pair{8, "net4"}));
  EXPECT_EQ(looks, 2);
  run(std::chrono::hours(1));
  EXPECT_EQ(looks, 2);
}

TEST_F(NetdevSearchTest, a_namespace_that_changes_all_the_time_has_a_bounded_share) {
  uint64_t looks = 0;
  NetdevSearch search(
      *loop_, aside_,
      [&](pid_t, const std::string&) -> Result<std::string> {
        ++looks;
        return base::fail(ENODEV, "none");
      },
      found());
  const auto change_for = [&](base::Duration time) {
    for (const auto end = clock_.now() + time; clock_.now() < end;) {
      search.want(7, 3, "");
      run(std::chrono::milliseconds(1));
    }
  };
  change_for(std::chrono::seconds(1));
  EXPECT_EQ(looks, 4U);  // after 50, 100, 200 and 400 ms
  change_for(std::chrono::minutes(1));
  const uint64_t with_longest = std::chrono::minutes(1) / NetdevSearch::kLongest;
  EXPECT_LE(looks, 4 + 3 + with_longest);
  EXPECT_GE(looks, 4 + with_longest);
  // After a rest the first delay again.
  run(3 * NetdevSearch::kLongest);
  const uint64_t before = looks;
  search.want(7, 3, "");
  run(NetdevSearch::kSettled + aside_.lasts);
  EXPECT_EQ(looks, before + 1);
}

TEST_F(NetdevSearchTest, a_look_that_takes_long_delays_the_others) {
  aside_.lasts = std::chrono::seconds(10);
  NetdevSearch search(
      *loop_, aside_, [](pid_t pid, const std::string&) { return std::to_string(pid); }, found());
  search.want(7, 3, "");
  search.want(8, 4, "");
  run(std::chrono::seconds(11));
  EXPECT_THAT(found_, testing::ElementsAre(std::pair{7, "3"}));
  search.want(7, 5, "");
  run(std::chrono::seconds(21));
  EXPECT_THAT(found_,
              testing::ElementsAre(std::pair{7, "3"}, std::pair{8, "4"}, std::pair{7, "5"}));
}

TEST_F(NetdevSearchTest, a_look_stops_neither_the_loop_nor_the_end) {
  AsideThread aside;
  std::atomic<bool> looks = false, may_end = false;
  {
    NetdevSearch search(
        *loop_, aside,
        [&](pid_t, const std::string&) -> Result<std::string> {
          looks = true;
          while (!may_end) std::this_thread::yield();
          return std::string("eth0");
        },
        found());
    search.want(7, 3, "");
    run(NetdevSearch::kSettled);
    while (!looks) std::this_thread::yield();
    bool served = false;
    loop_->post([&] { served = true; });
    run(std::chrono::milliseconds(1));
    EXPECT_TRUE(served);
  }
  may_end = true;
  std::atomic<bool> over = false;
  aside.run([&] { over = true; });
  while (!over) std::this_thread::yield();
  run(std::chrono::milliseconds(1));
  EXPECT_TRUE(found_.empty()) << "it is told after its end";
}

}  // namespace
}  // namespace vrdma::vrdmad
