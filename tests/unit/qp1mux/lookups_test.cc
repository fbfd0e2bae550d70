// Ids whose peer is beyond a network that answers late, twice, at once or never.
#include "qp1mux/lookups.h"

#include "tests/unit/qp1mux/ids.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Far : Ids {
  Far() { far = true; }

  CmId& ask(Program& program, const char* peer = "10.0.0.2", uint64_t netns = kNetnsA) {
    CmId& id = make(program, netns);
    EXPECT_TRUE(id.resolve_addr(std::nullopt, {gid(peer), 7471}));
    return id;
  }
  // What the network says: no more than how to get there.
  static Route way() {
    Route route;
    route.path_mtu = 2;
    route.hop_limit = 3;
    return route;
  }
};

TEST_F(Far, ResolveWhenTheNetworkAnswers) {
  serve();
  CmId& id = ask(one);
  EXPECT_EQ(id.state(), CmIdState::kResolving);
  rig.run(milliseconds(500));
  EXPECT_THAT(one.events, IsEmpty());
  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].remote, gid_b);
  EXPECT_EQ(asked[0].route.endpoint, &a);
  asked[0].answer(way());
  EXPECT_THAT(one.events, IsEmpty()) << "not from inside the network's call";
  rig.run();
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrResolved));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(id.route().hop_limit, 3);
  EXPECT_EQ(id.endpoint(), &a) << "the network does not choose the vdevice";
  EXPECT_EQ(id.local().gid, gid_a);
  ASSERT_TRUE(id.resolve_route());
  ASSERT_TRUE(id.connect(with(0x11)));
  rig.run();
  EXPECT_THAT(two.events, ElementsAre(CmEventType::kConnectRequest));
}

TEST_F(Far, DoNothingElseMeanwhile) {
  CmId& id = ask(one);
  EXPECT_EQ(id.resolve_addr(std::nullopt, {gid_b, 7471}).error().code(), EINVAL);
  EXPECT_EQ(id.bind({gid_a, 1}).error().code(), EINVAL);
  EXPECT_EQ(id.resolve_route().error().code(), EINVAL);
  EXPECT_EQ(id.connect(with(0x11)).error().code(), EINVAL);
  EXPECT_EQ(id.listen(1).error().code(), EINVAL);
  EXPECT_EQ(id.disconnect().error().code(), EINVAL);
}

TEST_F(Far, GiveUpInTime) {
  CmId& id = ask(one);
  rig.run(CmId::kPatience - milliseconds(1));
  EXPECT_THAT(one.events, IsEmpty());
  rig.run(milliseconds(1));
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrError));
  EXPECT_EQ(one.status, -ETIMEDOUT);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(id.state(), CmIdState::kBound);
  asked[0].answer(way());
  rig.run(kMinute);
  EXPECT_THAT(one.events, SizeIs(1)) << "it is too late";
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid_b, 7471}, std::chrono::seconds(10)));
  rig.run(std::chrono::seconds(9));
  EXPECT_THAT(one.events, SizeIs(1));
  asked[0].answer(way());
  rig.run();
  EXPECT_THAT(one.events, SizeIs(1)) << "that is the answer to another question";
  asked[1].answer(way());
  rig.run();
  EXPECT_EQ(one.events.back(), CmEventType::kAddrResolved);
}

TEST_F(Far, LearnThatThereIsNoWay) {
  ask(one);
  asked[0].answer(base::fail(EHOSTUNREACH, "no way"));
  rig.run();
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrError));
  EXPECT_EQ(one.status, -EHOSTUNREACH);
}

TEST_F(Far, HearNothingAfterTheirEnd) {
  ask(one);
  one.id.reset();
  EXPECT_EQ(ended, 1);
  asked[0].answer(way());
  rig.run(kMinute);
  EXPECT_THAT(one.events, IsEmpty());
}

// Also of those whose answer is on its way.
TEST_F(Far, HearNothingAfterTheirEndOfAnAnswerThatWaits) {
  ask(one);
  asked[0].answer(way());
  one.id.reset();
  rig.run(kMinute);
  EXPECT_THAT(one.events, IsEmpty());
}

TEST_F(Far, HearTheFirstAnswer) {
  CmId& id = ask(one);
  asked[0].answer(way());
  asked[0].answer(base::fail(EHOSTUNREACH, "changed its mind"));
  rig.run(kMinute);
  asked[0].answer(way());
  rig.run(kMinute);
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrResolved));
  EXPECT_EQ(id.state(), CmIdState::kAddressResolved);
}

TEST_F(Far, HearOfItLaterIfTheNetworkAnswersAtOnce) {
  answers_at_once = true;
  ask(one);
  EXPECT_THAT(one.events, IsEmpty());
  rig.run();
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrResolved));
}

TEST_F(Far, AreBoundedForEachTenant) {
  std::vector<Program> first(Lookups::kMost + 3);
  for (auto& program : first) ask(program);
  EXPECT_THAT(asked, SizeIs(Lookups::kMost));
  ask(two, "10.0.0.1", kNetnsB);
  ASSERT_THAT(asked, SizeIs(Lookups::kMost + 1)) << "another tenant does not wait";
  EXPECT_EQ(asked.back().route.endpoint, &b);

  // The next begin as others end: by an answer, and with their id.
  asked[5].answer(way());
  rig.run();
  EXPECT_THAT(first[5].events, ElementsAre(CmEventType::kAddrResolved));
  EXPECT_THAT(asked, SizeIs(Lookups::kMost + 2));
  first[6].id.reset();
  first[Lookups::kMost + 1].id.reset();  // it was the next
  rig.run();
  EXPECT_THAT(asked, SizeIs(Lookups::kMost + 3));
  asked.back().answer(way());
  rig.run();
  EXPECT_THAT(first[Lookups::kMost + 2].events, ElementsAre(CmEventType::kAddrResolved));
  EXPECT_THAT(first[Lookups::kMost].events, IsEmpty());
}

TEST_F(Far, BeginSeveralWhenSeveralEnd) {
  std::vector<Program> all(Lookups::kMost + 3);
  for (auto& program : all) ask(program);
  for (int i = 0; i < 3; ++i) all[i].id.reset();
  rig.run();
  EXPECT_THAT(asked, SizeIs(Lookups::kMost + 3));
}

// A line that does not move is no reason to wait longer; and what ends in time makes room.
TEST_F(Far, WaitInLineNoLongerThanTheyWouldForAnAnswer) {
  std::vector<Program> all(Lookups::kMost + 3);
  for (auto& program : all) ask(program);
  rig.run(CmId::kPatience);
  for (auto& program : all) {
    EXPECT_THAT(program.events, ElementsAre(CmEventType::kAddrError));
    EXPECT_EQ(program.status, -ETIMEDOUT);
  }
  EXPECT_EQ(ended, static_cast<int>(asked.size()));
  const size_t before = asked.size();
  ask(one);
  EXPECT_THAT(asked, SizeIs(before + 1));
}

TEST_F(Far, DoNotDelayThosePeersThatAreNear) {
  std::vector<Program> all(Lookups::kMost + 1);
  for (auto& program : all) ask(program);
  far = false;
  ask(one);
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrResolved));
}

TEST_F(Far, LoseTheirVdeviceMeanwhile) {
  CmId& id = ask(one);
  id.device_removed(b);
  EXPECT_EQ(id.state(), CmIdState::kResolving);
  id.device_removed(a);
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrError));
  EXPECT_EQ(one.status, -ENODEV);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(id.state(), CmIdState::kBound) << "to all addresses";

  CmId& bound = make(two, kNetnsA);
  ASSERT_TRUE(bound.bind({gid_a, 0}));
  ASSERT_TRUE(bound.resolve_addr(std::nullopt, {gid_b, 7471}));
  bound.device_removed(a);
  EXPECT_THAT(two.events, ElementsAre(CmEventType::kDeviceRemoval));
  EXPECT_EQ(ended, 2);
  asked[1].answer(way());
  rig.run(kMinute);
  EXPECT_THAT(two.events, SizeIs(1));
}

TEST_F(Far, AskAgainAfterADaemonsDeath) {
  const CmIdRecord record = ask(one).record();
  const uint16_t port = one.id->local().port;
  one.id.reset();
  one.id = CmId::restore(host, kNetnsA, record, nullptr, &one);
  EXPECT_EQ(one.id->state(), CmIdState::kResolving);
  EXPECT_EQ(one.id->local().port, port);
  EXPECT_THAT(asked, SizeIs(1)) << "not before its handler may be called";
  one.id->go_on();
  ASSERT_THAT(asked, SizeIs(2));
  EXPECT_EQ(asked[1].remote, gid_b);
  asked[1].answer(way());
  rig.run();
  EXPECT_THAT(one.events, ElementsAre(CmEventType::kAddrResolved));
  one.id->go_on();
  EXPECT_THAT(asked, SizeIs(2)) << "it does not wait any more";
}

// As of a host without a network.
TEST_F(Far, AreUnreachableWithoutANetwork) {
  int status = 0;
  EXPECT_EQ(Routes::look_up({}, gid_b, [&](auto route) { status = route.error().code(); }),
            nullptr);
  EXPECT_EQ(status, EHOSTUNREACH);
}

}  // namespace
}  // namespace vrdma::qp1mux
