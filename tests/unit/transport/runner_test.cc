#include "transport/runner.h"

#include <gtest/gtest.h>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::transport {
namespace {

using test::run_for;

struct Counted final : Runnable {
  std::function<bool()> turn = [] { return false; };
  int turns = 0;
  bool run() override {
    ++turns;
    return turn();
  }
};

struct Runners : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Runner runner{*loop};
  Counted a, b;
  void settle() { run_for(*loop, std::chrono::milliseconds(2)); }
};

TEST_F(Runners, RunWhatIsActiveUntilItSleeps) {
  a.turn = [&] { return a.turns < 5; };
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

TEST_F(Runners, TakeTurns) {
  int apart = 0;
  a.turn = [&] {
    apart = std::max(apart, std::abs(a.turns - b.turns));
    return a.turns < 1000;
  };
  b.turn = [&] { return b.turns < 1000; };
  runner.activate(&a);
  runner.activate(&b);
  settle();
  EXPECT_LE(apart, 1);
}

TEST_F(Runners, RunAgainWhatIsActivatedWhileItRuns) {
  a.turn = [&] {
    if (a.turns == 1) runner.activate(&a);
    return false;
  };
  runner.activate(&a);
  settle();
  EXPECT_EQ(a.turns, 2);
}

TEST_F(Runners, LetRunnablesLeaveAtAnyTime) {
  auto gone = std::make_unique<Counted>();
  gone->turn = [&] {
    runner.remove(gone.get());
    gone.reset();
    return true;
  };
  a.turn = [&] {
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
  a.turn = [&] {
    for (int i = 0; i < 100; ++i) {
      many.push_back(std::make_unique<Counted>());
      runner.activate(many.back().get());
    }
    return false;
  };
  runner.activate(&a);
  settle();
  for (const auto& one : many) EXPECT_EQ(one->turns, 1);
}

}  // namespace
}  // namespace vrdma::transport
