#include "vrdmad/identity/bounded.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>

namespace vrdma::vrdmad {
namespace {

// Jobs that last until the test is over.
struct BoundedLooks : testing::Test {
  ~BoundedLooks() override {
    over.set_value();
    while (running > 0) ::usleep(1000);
  }
  std::function<void()> hanging() {
    return [this, wait = over_too] {
      ++running;
      wait.wait();
      --running;
    };
  }
  std::promise<void> over;
  std::shared_future<void> over_too = over.get_future().share();
  std::atomic<int> running = 0;
  Bounded bounded;
};

TEST_F(BoundedLooks, AreOverWhenTheyReturn) {
  int count = 0;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bounded.run(7, [&] { ++count; }));
  EXPECT_EQ(count, 100);
}

TEST_F(BoundedLooks, AreGivenUpAfterAWhile) {
  const auto begun = base::EventLoop::now();
  EXPECT_FALSE(bounded.run(7, hanging()));
  EXPECT_LT(base::EventLoop::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(running, 1);
}

TEST_F(BoundedLooks, CloseTheirNamespaceAndNoOther) {
  EXPECT_FALSE(bounded.run(7, hanging()));
  EXPECT_GT(bounded.closed_for(7).count(), 0);
  EXPECT_FALSE(bounded.run(7, [] { ADD_FAILURE() << "it was begun"; }));
  EXPECT_EQ(running, 1) << "nobody else hangs";
  EXPECT_EQ(bounded.closed_for(8).count(), 0);
  EXPECT_TRUE(bounded.run(8, [] {}));
}

TEST_F(BoundedLooks, KeepItClosedAfterTheyEnd) {
  std::promise<void> end;
  std::atomic<bool> ended = false;
  EXPECT_FALSE(bounded.run(7, [&, wait = end.get_future().share()] {
    wait.wait();
    ended = true;
  }));
  end.set_value();
  while (!ended) ::usleep(1000);
  ::usleep(10'000);
  EXPECT_GT(bounded.closed_for(7), Bounded::kPatience);
}

}  // namespace
}  // namespace vrdma::vrdmad
