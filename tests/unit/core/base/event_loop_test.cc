#include "core/base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/core/base/manual_clock.h"

namespace vrdma::base {
namespace {

using std::chrono::milliseconds;

struct Loops : testing::Test {
  std::unique_ptr<EventLoop> loop = EventLoop::create().value();
  Fd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void signal() { ASSERT_EQ(::eventfd_write(event.get(), 1), 0); }
  void drain() {
    eventfd_t value = 0;
    ::eventfd_read(event.get(), &value);
  }
  // Ends a test that would hang.
  EventLoop::Timer guard = loop->after(std::chrono::seconds(20), [this] {
    ADD_FAILURE() << "the loop was not stopped";
    loop->stop();
  });
};

TEST_F(Loops, CallWhenReady) {
  int calls = 0;
  auto watch = loop->watch(event.get(), EPOLLIN, [&](uint32_t events) {
    EXPECT_NE(events & EPOLLIN, 0u);
    drain();
    if (++calls == 2) return loop->stop();
    signal();
  });
  ASSERT_TRUE(watch);
  signal();
  loop->run();
  EXPECT_EQ(calls, 2);
}

TEST_F(Loops, RefuseWhatCannotBeWatched) {
  EXPECT_FALSE(loop->watch(-1, EPOLLIN, [](uint32_t) {}));
  auto first = loop->watch(event.get(), EPOLLIN, [](uint32_t) {});
  EXPECT_FALSE(loop->watch(event.get(), EPOLLIN, [](uint32_t) {}));
  first->reset();
  EXPECT_FALSE(first->active());
  EXPECT_TRUE(loop->watch(event.get(), EPOLLIN, [](uint32_t) {}));
}

TEST_F(Loops, NeverCallADestroyedWatch) {
  // Both are ready in one pass; the callback that runs first destroys the other.
  Fd other(::eventfd(1, EFD_CLOEXEC));
  EventLoop::Watch first, second;
  int calls = 0;
  first = *loop->watch(event.get(), EPOLLIN, [&](uint32_t) {
    ++calls;
    second.reset();
    first.reset();
  });
  second = *loop->watch(other.get(), EPOLLIN, [&](uint32_t) {
    ++calls;
    first.reset();
    second.reset();
  });
  signal();
  auto end = loop->after(milliseconds(5), [&] { loop->stop(); });
  loop->run();
  EXPECT_EQ(calls, 1);
}

TEST_F(Loops, LetAWatchDestroyItselfWithItsState) {
  struct Owner {
    std::string text = std::string(100, 'x');
    EventLoop::Watch watch;
  };
  auto owner = std::make_unique<Owner>();
  size_t length = 0;
  owner->watch = *loop->watch(event.get(), EPOLLIN,
                              [&, text = std::string(100, 'y'), raw = owner.get()](uint32_t) {
                                ASSERT_EQ(raw, owner.get());
                                owner.reset();
                                length = text.size();  // still valid
                                loop->stop();
                              });
  signal();
  loop->run();
  EXPECT_EQ(length, 100u);
}

TEST_F(Loops, RunTimersInTheOrderOfTheirTimes) {
  std::string order;
  auto c = loop->after(milliseconds(6), [&] {
    order += 'c';
    loop->stop();
  });
  auto a = loop->after(milliseconds(2), [&] { order += 'a'; });
  auto b = loop->after(milliseconds(4), [&] { order += 'b'; });
  auto d = loop->after(milliseconds(3), [&] { order += 'd'; });
  d.reset();
  loop->run();
  EXPECT_EQ(order, "abc");
}

TEST_F(Loops, RunTimersNotBeforeTheirTime) {
  const auto begin = Clock::steady().now();
  auto timer = loop->after(milliseconds(10), [&] { loop->stop(); });
  loop->run();
  EXPECT_GE(Clock::steady().now() - begin, milliseconds(10));
}

TEST_F(Loops, LetATimerDestroyAndReplaceItself) {
  EventLoop::Timer timer;
  int calls = 0;
  std::function<void()> again = [&] {
    timer.reset();
    if (++calls == 5) return loop->stop();
    timer = loop->after(milliseconds(0), again);
  };
  timer = loop->after(milliseconds(1), again);
  loop->run();
  EXPECT_EQ(calls, 5);
}

TEST_F(Loops, DoNotStarveBesideATimerThatIsAlwaysDue) {
  EventLoop::Timer timer;
  std::function<void()> again = [&] { timer = loop->after(milliseconds(0), again); };
  timer = loop->after(milliseconds(0), again);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(5));
    loop->stop();
  });
  loop->run();
  other.join();
}

TEST_F(Loops, RunWhatIsPostedInOrderFromManyThreads) {
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<int> next(kThreads, 0);
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        loop->post([&, t, i] {
          EXPECT_EQ(next[static_cast<size_t>(t)]++, i);
          if (++total == kThreads * kEach) loop->stop();
        });
    });
  loop->run();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(total, kThreads * kEach);
}

TEST_F(Loops, RunWhatIsPostedByWhatIsPosted) {
  int depth = 0;
  std::function<void()> deeper = [&] {
    if (++depth == 100) return loop->stop();
    loop->post(deeper);
  };
  loop->post(deeper);
  loop->run();
  EXPECT_EQ(depth, 100);
}

TEST_F(Loops, RunWhatATimerPosts) {
  bool ran = false;
  const auto timer = loop->after(std::chrono::milliseconds(1), [&] {
    loop->post([&] {
      ran = true;
      loop->stop();
    });
  });
  loop->run();
  EXPECT_TRUE(ran);
}

// The thread of one loop is a foreign thread to other loops.
TEST_F(Loops, WakeEachOther) {
  auto other = EventLoop::create().value();
  std::thread thread([&] { other->run(); });
  loop->post([&] {
    other->post([&] {
      loop->post([&] {
        other->stop();
        loop->stop();
      });
    });
  });
  loop->run();
  thread.join();
}

TEST_F(Loops, StopBeforeRunAndRunAgain) {
  loop->stop();
  loop->run();
  bool ran = false;
  loop->post([&] {
    ran = true;
    loop->stop();
  });
  loop->run();
  EXPECT_TRUE(ran);
}

TEST_F(Loops, PollWhileThereIsWorkAndServeTheRest) {
  int polls = 0;
  bool served = false;
  auto watch = loop->watch(event.get(), EPOLLIN, [&](uint32_t) {
    drain();
    served = true;
  });
  loop->set_poller([&](TimePoint&) {
    if (++polls == 10) signal();
    if (polls == 20) loop->stop();
    return true;
  });
  loop->post([] {});  // the first pass
  loop->run();
  EXPECT_EQ(polls, 20);
  EXPECT_TRUE(served);
}

// Descriptors, timers and the poller wait for at most one batch of work that posts itself again.
TEST_F(Loops, ServeOthersBetweenBatchesOfPostedWork) {
  constexpr size_t kPosted = 10 * EventLoop::kPostedPerPass;
  size_t ran = 0, at_descriptor = 0, at_timer = 0, at_poller = 0;
  auto watch = loop->watch(event.get(), EPOLLIN, [&](uint32_t) {
    drain();
    at_descriptor = ran;
  });
  auto timer = loop->after(milliseconds(0), [&] { at_timer = ran; });
  loop->set_poller([&](TimePoint&) {
    if (at_poller == 0) at_poller = ran;
    return false;
  });
  for (size_t i = 0; i < kPosted; ++i)
    loop->post([&] {
      if (++ran == 1) signal();
      if (ran == kPosted) loop->stop();
    });
  loop->run();
  EXPECT_EQ(ran, kPosted);
  EXPECT_EQ(at_poller, EventLoop::kPostedPerPass);
  EXPECT_EQ(at_timer, EventLoop::kPostedPerPass);
  EXPECT_EQ(at_descriptor, EventLoop::kPostedPerPass);
}

TEST_F(Loops, TellTheirLongestPass) {
  loop->post([&] {
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_GE(loop->longest_pass(), milliseconds(20));  // even while it lasts
  });
  auto end = loop->after(milliseconds(60), [&] { loop->stop(); });
  loop->run();
  EXPECT_GE(loop->longest_pass(), milliseconds(20));
  std::this_thread::sleep_for(milliseconds(2));
  const auto longest = loop->longest_pass();
  std::this_thread::sleep_for(longest);
  EXPECT_EQ(loop->longest_pass(), longest);  // time does not count while the loop does not run
}

TEST_F(Loops, SleepWhenIdle) {
  const auto cpu = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
  };
  auto end = loop->after(milliseconds(100), [&] { loop->stop(); });
  const auto before = cpu();
  loop->run();
  EXPECT_LT(cpu() - before, 20);
}

// A loop's callbacks may own attachments of the same loop, as a timer does that keeps itself.
TEST_F(Loops, EndWithAttachmentsInTheirCallbacks) {
  guard.reset();
  auto own = std::make_shared<EventLoop::Timer>();
  *own = loop->after(std::chrono::hours(1), [own] {});
  auto watch = std::make_shared<EventLoop::Watch>();
  *watch = *loop->watch(event.get(), EPOLLIN, [watch, own](uint32_t) {});
  loop->post([watch, own] {});
  loop->set_poller([watch, own](TimePoint&) { return false; });
  own.reset();
  watch.reset();
  loop.reset();
}

TEST(VirtualTime, RunsTimersInTheirOrderAndAtTheirTime) {
  test::ManualClock clock;
  const auto loop = EventLoop::create(clock).value();
  const TimePoint begun = clock.now();
  std::vector<std::pair<int, Duration>> calls;
  const auto note = [&](int which) { calls.emplace_back(which, clock.now() - begun); };
  EXPECT_FALSE(loop->step());
  EXPECT_FALSE(loop->next_timer());
  const auto late = loop->after(std::chrono::hours(1), [&] { note(3); });
  EventLoop::Timer next;
  const auto early = loop->after(milliseconds(5), [&] {
    note(1);
    next = loop->after(milliseconds(5), [&] {
      note(2);
      loop->post([&] { note(-2); });
    });
  });
  EXPECT_EQ(loop->next_timer(), begun + milliseconds(5));
  EXPECT_FALSE(loop->step()) << "no time has passed";
  clock.run(*loop, milliseconds(20));
  using Calls = std::vector<std::pair<int, Duration>>;
  EXPECT_EQ(calls, (Calls{{1, milliseconds(5)}, {2, milliseconds(10)}, {-2, milliseconds(10)}}));
  EXPECT_EQ(clock.now() - begun, milliseconds(20));
  clock.run(*loop, std::chrono::hours(2));
  EXPECT_EQ(calls.back(), std::pair(3, Duration(std::chrono::hours(1))));
}

TEST(VirtualTime, StepServesWhatIsReady) {
  test::ManualClock clock;
  const auto loop = EventLoop::create(clock).value();
  const Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  int ready = 0, polled = 0;
  const auto watch = loop->watch(event.get(), EPOLLIN, [&](uint32_t) {
    eventfd_t value = 0;
    ::eventfd_read(event.get(), &value);
    ++ready;
  });
  ASSERT_TRUE(watch);
  loop->set_poller([&](TimePoint&) { return ++polled < 3; });
  EXPECT_TRUE(loop->step()) << "the poller has more";
  ::eventfd_write(event.get(), 1);
  EXPECT_TRUE(loop->step());
  EXPECT_EQ(ready, 1);
  EXPECT_FALSE(loop->step());
  EXPECT_EQ(polled, 3);
  loop->set_poller(nullptr);
}

}  // namespace
}  // namespace vrdma::base
