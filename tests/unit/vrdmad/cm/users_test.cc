// Limits of a user and a namespace: rdma_cm sessions and request rates.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <vector>

#include "tests/unit/vrdmad/cm/rig.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;

struct CmUsers : testing::Test {
  CmRig rig;
  CmClient one{rig, 0}, two{rig, 1};
};

TEST_F(CmUsers, AUserHasSoManyInANamespace) {
  std::vector<std::unique_ptr<CmClient>> clients;
  while (rig.spaces[0]->sessions.count() < CmUser::kMaxSessions)
    clients.push_back(std::make_unique<CmClient>(rig, 0));
  CmClient more(rig, 0);
  EXPECT_TRUE(more.ended());
  EXPECT_EQ(rig.cm.counters().crowded, 1u);
  const auto other = rig.cm.user(*rig.spaces[0], 4711);
  EXPECT_EQ(other->sessions, 0u) << "another user's sessions are not counted there";
  EXPECT_EQ(two.call(CmCall::kDevices), 0) << "another namespace";
  clients.clear();
  rig.settle();
  CmClient again(rig, 0);
  EXPECT_EQ(again.call(CmCall::kDevices), 0);
}

TEST_F(CmUsers, ANamespaceHasSoMany) {
  rig.spaces[0]->sessions.add(CmNamespace::kSessions.most);
  CmClient more(rig, 0);
  EXPECT_TRUE(more.ended());
  EXPECT_EQ(rig.cm.counters().crowded, 1u);
  rig.spaces[0]->sessions.remove(CmNamespace::kSessions.most);
  CmClient again(rig, 0);
  EXPECT_EQ(again.call(CmCall::kDevices), 0);
}

TEST(CmShare, LeavesRoomToThoseThatHaveLittle) {
  const CmShare::Limits limits{10, 2, 20};
  const auto all = std::make_shared<uint32_t>(0);
  CmShare greedy(limits, all), modest(limits, all);
  auto third = std::make_unique<CmShare>(limits, all);
  greedy.add(10);
  EXPECT_FALSE(greedy.has_room()) << "its own limit";
  EXPECT_TRUE(modest.has_room());
  modest.add(2);
  EXPECT_FALSE(modest.has_room()) << "more than its share, of the half that is left";
  greedy.remove(3);
  EXPECT_TRUE(modest.has_room() && greedy.has_room());
  greedy.add(3);
  third->add(8);
  EXPECT_FALSE(CmShare(limits, all).has_room()) << "there are no more at all";
  third.reset();
  EXPECT_TRUE(CmShare(limits, all).has_room());
  EXPECT_EQ(*all, 12u);
}

// Requests beyond the rate wait in the client's socket and are answered later.
TEST_F(CmUsers, RequestsBeyondTheRateAreServedLater) {
  ASSERT_TRUE(rig.devices[0]->set_limits({{"req_rate", 20}}));
  ASSERT_TRUE(rig.devices[1]->set_limits({{"req_rate", 20}}));
  EXPECT_EQ(one.call(CmCall::kDevices), 0);
  int answered = 1;
  while (answered < 1000 && one.call(CmCall::kDevices) == 0) ++answered;
  EXPECT_GE(answered, 15);
  EXPECT_LT(answered, 500) << "the rate is limited";
  EXPECT_GE(rig.cm.counters().delayed, 1u);
  EXPECT_EQ(two.call(CmCall::kDevices), 0) << "another namespace";
  EXPECT_FALSE(one.ended());
  int error = -1;
  for (int i = 0; i < 100 && error != 0; ++i) {
    ::usleep(50'000);
    error = one.receive();
  }
  EXPECT_EQ(error, 0) << "each request gets its reply";
}

TEST_F(CmUsers, ConnectionsAreCountedByUserAndForgottenInTime) {
  CmNamespace& space = *rig.spaces[0];
  ASSERT_TRUE(rig.devices[0]->set_limits({{"conn_rate", 2}}));
  const auto user = rig.cm.user(space, 4711);
  const auto now = base::Clock::steady().now();
  EXPECT_TRUE(user->arrivals.take(now));
  EXPECT_TRUE(user->arrivals.take(now));
  EXPECT_FALSE(user->arrivals.take(now));
  EXPECT_TRUE(rig.cm.user(space, 4712)->arrivals.take(now)) << "another user";
  EXPECT_FALSE(user->is_at_rest(now));
  for (uid_t uid = 10'000; uid < 20'000; ++uid) (void)rig.cm.user(space, uid);
  EXPECT_LT(space.users.size(), 3000u);
  EXPECT_EQ(rig.cm.user(space, 4711), user) << "its use of the rate is not forgotten";
  EXPECT_TRUE(user->is_at_rest(now + std::chrono::seconds(2)));
}

}  // namespace
}  // namespace vrdma::vrdmad
