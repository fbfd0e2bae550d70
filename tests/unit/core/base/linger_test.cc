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
  while (!linger.again());  // takes longer if processors are scarce
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

// The last of these tests, because after it nothing lingers for a while.
TEST(Linger, NotWhereOthersWantTheProcessor) {
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
    others.emplace_back([&] {
      while (!over) continue;
    });
  Linger linger(std::chrono::hours(1));
  do {  // repeated if this thread did not run all the time
    linger.begin();
    while (linger.again()) continue;
    linger.begin();
  } while (linger.again());
  over = true;
  for (auto& other : others) other.join();
}

}  // namespace
}  // namespace vrdma::base
