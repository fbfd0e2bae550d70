#include "core/base/linger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace vrdma::base {
namespace {

TEST(Linger, OnlyAfterSomething) {
  Linger linger(std::chrono::seconds(1));
  EXPECT_FALSE(linger.again());
  do linger.begin();
  while (!linger.again());  // which processors that are scarce delay
}

TEST(Linger, NotForEver) {
  Linger linger(std::chrono::milliseconds(1));
  linger.begin();
  while (linger.again()) continue;
  EXPECT_FALSE(linger.again());
  Linger never(std::chrono::nanoseconds(0));
  never.begin();
  EXPECT_FALSE(never.again());
}

// The last of these tests: for a while nothing lingers.
TEST(Linger, NotWhereOthersWantTheProcessor) {
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!over) continue;
    });
  Linger linger(std::chrono::hours(1));
  do {  // again, where this thread has not run for all of that while
    linger.begin();
    while (linger.again()) continue;
    linger.begin();
  } while (linger.again());
  over = true;
  for (auto& other : others) other.join();
}

}  // namespace
}  // namespace vrdma::base
