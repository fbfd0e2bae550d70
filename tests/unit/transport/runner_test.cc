#include "transport/runner.h"

#include <gtest/gtest.h>

#include "tests/unit/core/rdma/world.h"
#include "transport/backlog.h"

namespace vrdma::transport {
namespace {

using test::run_for;
using test::run_until;

struct Counted final : Runnable {
  using Runnable::Runnable, Runnable::set_session;
  std::function<bool(Turn&)> work = [](Turn&) { return false; };
  int turns = 0;
  bool run(Turn& turn) override {
    ++turns;
    return work(turn);
  }
};

struct Runners : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Runner runner{*loop};
  Lane lane{runner, "red"};
  Counted a{lane}, b{lane};
  ~Runners() override {
    runner.remove(&a);
    runner.remove(&b);
  }
  void settle() { run_for(*loop, std::chrono::milliseconds(2)); }
};

TEST_F(Runners, RunWhatIsActiveUntilItSleeps) {
  a.work = [&](Turn&) { return a.turns < 5; };
  runner.activate(&a);
  runner.activate(&a);
  settle();
  EXPECT_EQ(a.turns, 5);
  settle();
  EXPECT_EQ(a.turns, 5);
  runner.activate(&a);
  settle();
  EXPECT_EQ(a.turns, 6);
}

TEST_F(Runners, TellEachSessionThatHasWorkedOnce) {
  int told = 0;
  runner.on_work([&] { ++told; });
  a.set_session(11);
  b.set_session(12);
  a.work = [&](Turn& turn) {
    turn.spend(1);
    return a.turns < 5;
  };
  b.work = [&](Turn&) { return b.turns < 5; };  // only looks
  const auto run_both = [&] {
    a.turns = b.turns = 0;
    runner.activate(&a);
    runner.activate(&b);
    settle();
  };
  run_both();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(runner.take_worked(), std::vector<uint32_t>{11});
  EXPECT_TRUE(runner.take_worked().empty());
  run_both();
  run_both();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(runner.take_worked(), std::vector<uint32_t>{11});
}

TEST_F(Runners, LetThoseThatOnlyLookTakeTurns) {
  int apart = 0;
  a.work = [&](Turn&) {
    apart = std::max(apart, std::abs(a.turns - b.turns));
    return a.turns < 1000;
  };
  b.work = [&](Turn&) { return b.turns < 1000; };
  runner.activate(&a);
  runner.activate(&b);
  for (int i = 0; i < 5000 && a.turns < 1000; ++i) settle();
  EXPECT_EQ(a.turns, 1000);
  EXPECT_LE(apart, 1);
}

TEST_F(Runners, RunAgainWhatIsActivatedWhileItRuns) {
  a.work = [&](Turn&) {
    if (a.turns == 1) runner.activate(&a);
    return false;
  };
  runner.activate(&a);
  settle();
  EXPECT_EQ(a.turns, 2);
}

TEST_F(Runners, LetRunnablesLeaveAtAnyTime) {
  auto gone = std::make_unique<Counted>(lane);
  gone->work = [&](Turn& turn) {
    turn.spend(100);
    runner.remove(gone.get());
    gone.reset();
    return true;
  };
  a.work = [&](Turn&) {
    runner.remove(&b);  // waits for its turn in the same pass
    runner.remove(&b);
    return false;
  };
  runner.activate(gone.get());
  runner.activate(&a);
  runner.activate(&b);
  settle();
  EXPECT_EQ(a.turns, 1);
  EXPECT_EQ(b.turns, 0);
}

TEST_F(Runners, GrowWhileTheyRun) {
  std::vector<std::unique_ptr<Counted>> many;
  a.work = [&](Turn&) {
    for (int i = 0; i < 100; ++i) {
      many.push_back(std::make_unique<Counted>(lane));
      runner.activate(many.back().get());
    }
    return false;
  };
  runner.activate(&a);
  settle();
  for (const auto& one : many) EXPECT_EQ(one->turns, 1);
}

TEST_F(Runners, DoABacklogPieceByPiece) {
  Backlog backlog(lane);
  std::vector<int> done;
  for (int i = 0; i < 3; ++i)
    backlog.add([&, i] {
      done.push_back(i);
      if (i == 0) backlog.add([&] { done.push_back(9); });
    });
  settle();
  EXPECT_EQ(done, (std::vector{0, 1, 2, 9}));
  backlog.add([&] { done.push_back(10); });  // and goes before it is done
}

// ---- shares, with a clock that goes on only when a sender works -------------------------------

base::TimePoint clock_now{};
struct ReadClock final : base::Clock {
  [[nodiscard]] base::TimePoint now() const override { return clock_now; }
};
const ReadClock read_clock;

// Always has another request, of `bytes` and `time`.
struct Sender final : Runnable {
  Sender(Lane& lane, uint64_t bytes, base::Duration time)
      : Runnable(lane), bytes_(bytes), time_(time) {
    activate();
  }
  ~Sender() override { lane().runner().remove(this); }
  void activate() { lane().runner().activate(this); }
  bool run(Turn& turn) override {
    do {
      clock_now += time_;
      turn.spend(kRequestCost + bytes_);
      ++requests;
      moved += bytes_;
      longest_wait = std::max(longest_wait, clock_now - served_);
      served_ = clock_now;
      if (--left == 0) return false;
    } while (!turn.over());
    return true;
  }
  uint64_t requests = 0, moved = 0;
  int64_t left = -1;  // none of them: without end
  base::Duration longest_wait{};

 private:
  uint64_t bytes_;
  base::Duration time_;
  base::TimePoint served_ = clock_now;
};

struct Fair : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Runner runner{*loop, read_clock};
  Lane red{runner, "red"}, red_too{runner, "red"}, blue{runner, "blue"};
  std::vector<std::unique_ptr<Sender>> senders;

  Sender& add(Lane& lane, uint64_t bytes, base::Duration time) {
    return *senders.emplace_back(std::make_unique<Sender>(lane, bytes, time));
  }
  // A copy of 8 GiB a second, and 200 ns a request.
  Sender& add(Lane& lane, uint64_t bytes) {
    return add(lane, bytes, std::chrono::nanoseconds(200 + bytes / 8));
  }
  void pass_for(base::Duration time) {
    const auto end = clock_now + time;
    while (clock_now < end) {
      const auto begun = clock_now;
      base::TimePoint now = begun;
      if (!runner.pass(now)) return;
      longest_pass = std::max(longest_pass, now - begun);
    }
  }
  uint64_t moved_by(size_t from, size_t to) const {
    uint64_t sum = 0;
    for (size_t i = from; i < to; ++i) sum += senders[i]->moved;
    return sum;
  }
  base::Duration longest_pass{};
};
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_F(Fair, EachTenantIsServedHoweverManyQueuesAnotherHas) {
  for (int i = 0; i < 1024; ++i) add(red, 64u << 10);
  Sender& victim = add(blue, 8);
  pass_for(milliseconds(100));
  EXPECT_LT(victim.longest_wait, microseconds(100));
  EXPECT_LT(longest_pass, microseconds(110));
  // All of red's had their turns too.
  for (const auto& sender : senders) EXPECT_GT(sender->requests, 0u);
}

TEST_F(Fair, TenantsMoveTheSameWhateverTheirNumbersOfVdevicesAndQueues) {
  for (int i = 0; i < 20; ++i) add(i % 2 == 0 ? red : red_too, 64u << 10);
  add(blue, 64u << 10);
  pass_for(milliseconds(100));
  EXPECT_NEAR(static_cast<double>(moved_by(0, 20)) / static_cast<double>(moved_by(20, 21)), 1,
              0.05);
}

TEST_F(Fair, VdevicesOfATenantMoveTheSameWhateverTheirNumberOfQueues) {
  for (int i = 0; i < 20; ++i) add(red, 64u << 10);
  add(red_too, 64u << 10);
  pass_for(milliseconds(100));
  EXPECT_NEAR(static_cast<double>(moved_by(0, 20)) / static_cast<double>(moved_by(20, 21)), 1,
              0.05);
}

TEST_F(Fair, QueuesOfAVdeviceMoveTheSameWhateverTheirMessages) {
  add(red, 1000);
  add(red, 64u << 10);
  pass_for(milliseconds(100));
  // To the small ones kRequestCost is as much as what they move.
  EXPECT_NEAR(static_cast<double>(senders[0]->requests * (1000 + kRequestCost)) /
                  static_cast<double>(senders[1]->requests * ((64u << 10) + kRequestCost)),
              1, 0.05);
}

TEST_F(Fair, AFloodOfSmallRequestsIsWorthNoMoreThanLargeOnes) {
  for (int i = 0; i < 10; ++i) add(red, 8);
  Sender& large = add(blue, 64u << 10);
  pass_for(milliseconds(100));
  uint64_t requests = 0;
  for (int i = 0; i < 10; ++i) requests += senders[static_cast<size_t>(i)]->requests;
  EXPECT_LT(requests * (8 + kRequestCost), 11 * large.requests * ((64u << 10) + kRequestCost) / 10);
}

TEST_F(Fair, TimeCountsWhereBytesDoNotTell) {
  add(red, 8, microseconds(30));  // such as a request of a session
  add(blue, 8, microseconds(1));
  pass_for(milliseconds(100));
  const auto red_time = senders[0]->requests * 30, blue_time = senders[1]->requests;
  EXPECT_NEAR(static_cast<double>(red_time) / static_cast<double>(blue_time), 1, 0.25);
}

TEST_F(Fair, WhoExceedsATurnPaysBeforeTheNext) {
  add(red, 1u << 20, microseconds(1));  // of a size that cannot be cut
  add(blue, 32u << 10, microseconds(1));
  pass_for(milliseconds(20));
  EXPECT_NEAR(static_cast<double>(senders[0]->moved) / static_cast<double>(senders[1]->moved), 1,
              0.1);
}

TEST_F(Fair, NobodySavesUpTurns) {
  Sender& idle = add(red, 64u << 10);
  idle.left = 1;
  add(blue, 64u << 10);
  pass_for(milliseconds(50));
  ASSERT_EQ(idle.requests, 1u);
  const uint64_t before = senders[1]->moved;
  idle.left = -1;
  idle.activate();
  pass_for(milliseconds(1));
  EXPECT_NEAR(static_cast<double>(idle.moved - (64u << 10)) /
                  static_cast<double>(senders[1]->moved - before),
              1, 0.15);
}

TEST_F(Fair, ATurnEndsInTimeAndThePassWithIt) {
  add(red, 8, microseconds(5));
  pass_for(milliseconds(10));
  // A look at the clock after eight requests, and one of them beyond the end.
  EXPECT_LE(longest_pass, microseconds(50 + 8 * 5));
}

TEST_F(Fair, ALaneFencesOnceAMillisecond) {
  clock_now += milliseconds(10);
  const auto first = clock_now;
  EXPECT_TRUE(red.fence_since(first));
  clock_now += microseconds(500);
  EXPECT_TRUE(red.fence_since(first - microseconds(1)));  // was made since
  EXPECT_FALSE(red.fence_since(clock_now));
  EXPECT_TRUE(blue.fence_since(clock_now));
  clock_now += microseconds(500);
  EXPECT_TRUE(red.fence_since(first + microseconds(500)));
}

// ---- who pays for the time of a lane ----------------------------------------------------------

base::Duration work_time() { return clock_now.time_since_epoch(); }

// Lets its lane work until `left` is used up.
struct Meter final : base::CpuMeter {
  base::Duration left = std::chrono::hours(1);
  base::Duration paid{};
  int asked = 0;
  void spend(base::Duration used) override {
    paid += used;
    left -= used;
  }
  base::Duration wait(base::TimePoint) override {
    ++asked;
    return left.count() > 0 ? base::Duration(0) : milliseconds(1);
  }
};

struct Metered : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Runner runner{*loop, read_clock, &work_time};
  Meter meter;
  Lane red{runner, "red"}, blue{runner, "blue"};
  Metered() { red.set_meter(&meter); }
  void pass_for(base::Duration time) {
    const auto end = clock_now + time;
    while (clock_now < end) {
      base::TimePoint now = clock_now;
      if (!runner.pass(now)) return;
    }
  }
  void settle() { run_for(*loop, milliseconds(5)); }
};

TEST_F(Metered, LanesPayForAllTheirTime) {
  Sender one(red, 8, microseconds(3)), other(red, 64u << 10, microseconds(20)),
      neighbour(blue, 8, microseconds(7));
  pass_for(milliseconds(10));
  EXPECT_EQ(meter.paid, base::Duration(one.requests * microseconds(3)) +
                            base::Duration(other.requests * microseconds(20)));
}

TEST_F(Metered, LanesRestWhenTheyMustWaitAndTheirNeighboursDoNot) {
  Sender attacker(red, 8, microseconds(5)), neighbour(blue, 8, microseconds(5));
  meter.left = microseconds(100);
  pass_for(milliseconds(10));
  EXPECT_TRUE(red.rests());
  EXPECT_FALSE(blue.rests());
  EXPECT_LE(attacker.requests, 20u + 16);  // and a turn
  EXPECT_GE(neighbour.requests, 1900u);
}

TEST_F(Metered, LanesComeBackWhenTheyMay) {
  Sender sender(red, 8, microseconds(5));
  meter.left = microseconds(1);
  pass_for(milliseconds(1));
  const uint64_t before = sender.requests;
  meter.left = milliseconds(-1);
  EXPECT_TRUE(run_until(*loop, [&] { return meter.asked >= 5; }));
  EXPECT_EQ(sender.requests, before);
  meter.left = milliseconds(10);
  sender.left = 100;
  EXPECT_TRUE(run_until(*loop, [&] { return sender.left == 0; }));
  EXPECT_EQ(sender.requests, before + 100);
  EXPECT_FALSE(red.rests());
}

TEST_F(Metered, LanesTakeNewWorkAndLetItGoWhileTheyRest) {
  meter.left = microseconds(1);
  auto gone = std::make_unique<Sender>(red, 8, microseconds(5));
  pass_for(milliseconds(1));
  ASSERT_TRUE(red.rests());
  Sender late(red, 8, microseconds(5));
  late.left = 1;
  gone.reset();
  settle();
  EXPECT_EQ(late.requests, 0u);
  meter.left = milliseconds(10);
  EXPECT_TRUE(run_until(*loop, [&] { return late.requests == 1; }));
}

TEST_F(Metered, LanesThatOweRestAlsoWithNothingToDo) {
  Sender sender(red, 8, microseconds(5));
  sender.left = 1;
  meter.left = microseconds(5);
  pass_for(milliseconds(1));
  EXPECT_TRUE(red.rests());
  sender.left = 1;
  sender.activate();
  EXPECT_EQ(sender.requests, 1u);
  meter.left = milliseconds(1);
  EXPECT_TRUE(run_until(*loop, [&] { return sender.requests == 2; }));
}

}  // namespace
}  // namespace vrdma::transport
