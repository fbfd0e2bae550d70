#include "vrdmad/worker/pacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/unit/core/base/run_until.h"

namespace vrdma::vrdmad {
namespace {

using provisioning::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

// All that can be spent at once of 1 GB/s: however late a turn comes, none follows it at once.
constexpr uint64_t kTurn = 50'000'000;

// A send queue that always has work.
struct Queue final : rdma::Sender {
  Queue(Pacer& its_pacer, std::vector<int>& its_order, int its_number)
      : pacer(its_pacer), order(its_order), number(its_number) {}
  ~Queue() override { pacer.leave(*this); }
  void kick() override {
    if (!eager || !pacer.admit(*this)) return;
    pacer.spend(kTurn, 1);
    order.push_back(number);
    (void)pacer.admit(*this);
  }
  void link_changed() override {}
  void receive_posted() override {}
  [[nodiscard]] bool drained() const override { return true; }

  Pacer& pacer;
  std::vector<int>& order;
  int number;
  bool eager = true;
};

struct Pacers : testing::Test {
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  std::shared_ptr<Pacer::Shown> shown = std::make_shared<Pacer::Shown>();
  Pacer pacer{*loop, {}, shown};
  std::vector<int> order;

  void limit(uint64_t bandwidth) {
    provisioning::Limits limits{};
    for (const Kind kind : provisioning::all_kinds())
      of(limits, kind) = provisioning::traits(kind).ceiling;
    of(limits, Kind::kBandwidthMin) = 0;
    of(limits, Kind::kBandwidth) = bandwidth;
    pacer.set(limits);
  }
  // Nobody may go on, however slow the test is, until there is another limit.
  void owe_for_days() {
    limit(1);
    pacer.spend(1'000'000, 0);
  }
  void run_until(const std::function<bool()>& condition) {
    EXPECT_TRUE(test::run_until(*loop, condition));
  }
};

TEST_F(Pacers, CallOneAfterTheOther) {
  owe_for_days();
  Queue a(pacer, order, 1), b(pacer, order, 2), c(pacer, order, 3);
  for (Queue* queue : {&a, &b, &c}) queue->kick();
  EXPECT_THAT(order, IsEmpty());
  limit(1'000'000'000);
  run_until([&] { return order.size() >= 9; });
  order.resize(9);
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2, 3));
}

TEST_F(Pacers, PassOverWhoHasNoMoreWorkOrIsGone) {
  owe_for_days();
  auto gone = std::make_unique<Queue>(pacer, order, 1);
  Queue idle(pacer, order, 2), busy(pacer, order, 3);
  for (Queue* queue : {gone.get(), &idle, &busy}) queue->kick();
  gone.reset();
  idle.eager = false;
  limit(1'000'000'000);
  run_until([&] { return order.size() >= 2; });
  EXPECT_EQ(order[0], 3);
  EXPECT_EQ(order[1], 3);
}

TEST_F(Pacers, LetEverybodyGoWhenTheLimitEnds) {
  owe_for_days();
  Queue a(pacer, order, 1), b(pacer, order, 2);
  a.kick();
  b.kick();
  limit(provisioning::traits(Kind::kBandwidth).ceiling);
  pacer.dismiss();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(Pacers, FollowAHigherLimitAtOnce) {
  owe_for_days();
  Queue a(pacer, order, 1);
  a.kick();
  limit(1'000'000'000);
  run_until([&] { return !order.empty(); });
}

TEST_F(Pacers, ReportWhatWasWaitedFor) {
  limit(1000);
  pacer.spend(5000, 2);
  Queue a(pacer, order, 1);
  a.kick();
  EXPECT_EQ(shown->bytes.waits, 1u);
  EXPECT_EQ(shown->bytes.spent, 5000u);
  EXPECT_EQ(shown->messages.spent, 2u);
}

}  // namespace
}  // namespace vrdma::vrdmad
