#include "core/base/asymmetric_fence.h"

#include <gtest/gtest.h>

#include <thread>

namespace vrdma::base {
namespace {

// Dekker's litmus test: at least one side sees the other's store.
void never_both_miss(bool cheap) {
  constexpr int kRounds = 20'000;
  std::atomic<int> x = 0, y = 0, round = 0, done = 0;
  int frequent_saw = 0, rare_saw = 0, missed = 0;
  std::thread frequent([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load(std::memory_order_acquire) != i) {
      }
      x.store(1, std::memory_order_relaxed);
      AsymmetricFence::light(cheap);
      frequent_saw = y.load(std::memory_order_relaxed);
      done.store(i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    x.store(0, std::memory_order_relaxed);
    y.store(0, std::memory_order_relaxed);
    round.store(i, std::memory_order_release);
    y.store(1, std::memory_order_relaxed);
    AsymmetricFence::heavy();
    rare_saw = x.load(std::memory_order_relaxed);
    while (done.load(std::memory_order_acquire) != i) std::this_thread::yield();
    missed += frequent_saw == 0 && rare_saw == 0 ? 1 : 0;
  }
  frequent.join();
  EXPECT_EQ(missed, 0);
}

TEST(AsymmetricFence, CheapSideIsSeen) {
  if (!AsymmetricFence::register_process()) GTEST_SKIP() << "the kernel has no such membarrier";
  never_both_miss(true);
}

TEST(AsymmetricFence, WithoutTheKernelBothSidesFence) { never_both_miss(false); }

}  // namespace
}  // namespace vrdma::base
