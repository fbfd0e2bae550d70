#include "vrdmad/broker/bounded.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <utility>

#include "core/base/cpu_meter.h"

namespace vrdma::vrdmad {
namespace {

// Sleeps in the kernel until its write end is closed.
class Hang {
 public:
  Hang() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Hang() {
    end();
    ::close(ends_[0]);
  }
  Hang(const Hang&) = delete;
  Hang& operator=(const Hang&) = delete;
  void operator()() {
    ++running;
    // Not vfork(2), which sanitizers replace by fork(2).
    const auto child = static_cast<pid_t>(
        ::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (child == 0) {
      char none = 0;
      ::close(ends_[1]);
      (void)!::read(ends_[0], &none, 1);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    --running;
  }
  void end() {
    if (!std::exchange(ended_, true)) ::close(ends_[1]);
    while (running > 0) ::usleep(1000);
  }
  std::atomic<int> running = 0;

 private:
  std::array<int, 2> ends_{};
  bool ended_ = false;
};

struct BoundedLooks : testing::Test {
  Hang hang;
  Bounded bounded;
};

TEST_F(BoundedLooks, AreOverWhenTheyReturn) {
  int count = 0;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bounded.run(7, [&] { ++count; }));
  EXPECT_EQ(count, 100);
}

TEST_F(BoundedLooks, AreGivenUpAfterAWhile) {
  const auto begun = base::Clock::steady().now();
  EXPECT_FALSE(bounded.run(7, [this] { hang(); }));
  EXPECT_LT(base::Clock::steady().now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(hang.running, 1);
}

TEST_F(BoundedLooks, CloseTheirNamespaceAndNoOther) {
  EXPECT_FALSE(bounded.run(7, [this] { hang(); }));
  EXPECT_GT(bounded.closed_for(7).count(), 0);
  EXPECT_FALSE(bounded.run(7, [] { ADD_FAILURE() << "the job was started"; }));
  EXPECT_EQ(hang.running, 1) << "no other job hangs";
  EXPECT_EQ(bounded.closed_for(8).count(), 0);
  EXPECT_TRUE(bounded.run(8, [] {}));
}

TEST_F(BoundedLooks, KeepItClosedAfterTheyEnd) {
  EXPECT_FALSE(bounded.run(7, [this] { hang(); }));
  hang.end();
  ::usleep(10'000);
  EXPECT_GT(bounded.closed_for(7), Bounded::kPatience);
}

TEST_F(BoundedLooks, ArePaidForByTheirNamespace) {
  const auto compute = [] {
    const base::Duration end = base::thread_cpu_time() + std::chrono::milliseconds(60);
    while (base::thread_cpu_time() < end) continue;
  };
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(bounded.run(7, compute, false));
  EXPECT_EQ(bounded.closed_for(7).count(), 0);
  int looks = 0;
  while (looks < 10 && bounded.run(7, compute)) ++looks;
  EXPECT_GE(looks, 4);  // with less than kAtOnce before the last one
  EXPECT_LT(looks, 10);
  EXPECT_GT(bounded.closed_for(7).count(), 0);
  EXPECT_EQ(bounded.closed_for(8).count(), 0);
  EXPECT_TRUE(bounded.run(8, [] {}));
}

TEST_F(BoundedLooks, MayTakeLongWhileTheyWork) {
  std::atomic<bool> over = false;
  EXPECT_TRUE(bounded.run(7, [&] {
    const auto end = base::Clock::steady().now() + 4 * Bounded::kPatience;
    while (base::Clock::steady().now() < end) {
    }
    over = true;
  }));
  EXPECT_TRUE(over);
  EXPECT_EQ(bounded.closed_for(7).count(), 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
