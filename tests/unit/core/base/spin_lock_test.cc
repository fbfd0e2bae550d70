#include "core/base/spin_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace vrdma::base {
namespace {

TEST(SpinLock, IsTakenByOneAtATime) {
  constexpr int kThreads = 4, kRounds = 20'000;
  SpinLock lock;
  int inside = 0, entered = 0;
  bool alone = true;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard guard(lock);
        alone = alone && ++inside == 1;
        ++entered;
        --inside;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(alone);
  EXPECT_EQ(entered, kThreads * kRounds);
}

// A lock taken by the only thread of a process is taken for threads that start later.
TEST(SpinLock, StaysTakenWhenThreadsCome) {
  SpinLock lock;
  lock.lock();
  bool taken = true;
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.unlock();
  std::thread([&] { taken = lock.try_lock(); }).join();
  EXPECT_TRUE(taken);
}

}  // namespace
}  // namespace vrdma::base
