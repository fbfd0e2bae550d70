#include "core/base/cpu_meter.h"

#include <gtest/gtest.h>

#include <thread>

namespace vrdma::base {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(ThreadCpuTime, CountsWorkAndNotSleep) {
  const Duration before = thread_cpu_time();
  std::this_thread::sleep_for(milliseconds(50));
  const Duration slept = thread_cpu_time();
  EXPECT_LT(slept - before, milliseconds(25));
  while (thread_cpu_time() - slept < milliseconds(5)) {
  }
}

int asked = 0;
Duration kernels{};
Duration ask_kernel() {
  ++asked;
  return kernels;
}

// A thread that always works unless it is preempted.
struct Stopwatches : testing::Test {
  Stopwatches() {
    asked = 0;
    kernels = {};
  }
  CpuStopwatch watch{&ask_kernel};
  TimePoint now{milliseconds(10)};

  Duration stretch(Duration work, Duration kept = {}) {
    const TimePoint begun = now;
    now += work + kept;
    kernels += work;
    return watch.used(begun, now);
  }
};

TEST_F(Stopwatches, BelieveTheClockOfShortStretches) {
  watch.look(now);
  for (int i = 0; i < 100; ++i) {
    watch.look(now);
    EXPECT_EQ(stretch(microseconds(5)), microseconds(5));
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(Stopwatches, AskTheKernelAfterALongOne) {
  watch.look(now);
  (void)stretch(microseconds(50));
  EXPECT_EQ(stretch(milliseconds(2)), milliseconds(2));
  EXPECT_EQ(stretch(microseconds(50), milliseconds(4)), microseconds(50));
  EXPECT_EQ(stretch(microseconds(30)), microseconds(30));
  EXPECT_EQ(stretch(microseconds(20), milliseconds(4)), microseconds(20));
}

TEST_F(Stopwatches, CountNoMoreThanTheTimeThatPassed) {
  watch.look(now);
  kernels += milliseconds(3);  // outside of the measured stretches
  EXPECT_EQ(stretch(microseconds(200)), microseconds(200));
}

TEST_F(Stopwatches, TakeBackWhatShortStretchesDidNotUse) {
  watch.look(now);
  Duration counted{};
  for (int i = 0; i < 1000; ++i) {
    watch.look(now);
    counted += stretch(microseconds(40), microseconds(30));
  }
  EXPECT_GT(counted, milliseconds(38));
  EXPECT_LT(counted, milliseconds(40) + milliseconds(1));
}

TEST_F(Stopwatches, TakeBackAfterALongStretchToo) {
  watch.look(now);
  EXPECT_EQ(stretch(microseconds(20), microseconds(60)), microseconds(80));
  EXPECT_EQ(stretch(microseconds(10), milliseconds(4)), microseconds(0));
  EXPECT_EQ(stretch(microseconds(70)), microseconds(20));
  EXPECT_EQ(stretch(microseconds(70)), microseconds(70));
}

TEST_F(Stopwatches, ForgetWhatWasBeforeTheLastLook) {
  watch.look(now);
  now += milliseconds(1);
  kernels += milliseconds(1);
  watch.look(now);
  EXPECT_EQ(stretch(microseconds(10), milliseconds(4)), microseconds(10));
}

}  // namespace
}  // namespace vrdma::base
