// rdma_cm ids: the events that programs expect, in order, and the attributes of queue pairs.
#include "qp1mux/cm_id.h"

#include "tests/unit/qp1mux/ids.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Type = CmEventType;

TEST_F(Ids, ConnectWithTheEventsThatProgramsExpect) {
  const std::vector<uint8_t> hello(56, 7), welcome(196, 8);
  serve();
  call(CmService::kRc, hello);
  EXPECT_THAT(two.events, ElementsAre(Type::kConnectRequest));
  EXPECT_EQ(two.data, hello);
  EXPECT_EQ(two.param.qpn, 0x11u);
  EXPECT_EQ(two.param.responder_resources, 5);
  EXPECT_EQ(two.param.initiator_depth, 3);
  EXPECT_EQ(two.last().local(), (Address{gid_b, 7471}));
  EXPECT_EQ(two.last().remote(), (Address{gid_a, one.id->local().port}));
  EXPECT_EQ(two.last().endpoint(), &b);
  EXPECT_EQ(one.id->local().gid, gid_a);
  ASSERT_TRUE(two.last().accept(with(0x22, welcome)));
  rig.run();
  EXPECT_EQ(one.data, welcome);
  ASSERT_TRUE(one.id->confirm());
  rig.run();
  EXPECT_THAT(one.events,
              ElementsAre(Type::kAddrResolved, Type::kRouteResolved, Type::kConnectResponse));
  EXPECT_THAT(two.events, ElementsAre(Type::kConnectRequest, Type::kEstablished));
}

TEST_F(Ids, AreChargedToTheVdeviceThatTheyAreBoundTo) {
  establish_ids();
  EXPECT_EQ(ids_left, 100 - 2) << "a listener at the wildcard is bound to no vdevice";
  ids_left = 0;
  Program three;
  CmId& id = make(three, kNetnsA);
  EXPECT_EQ(id.bind({gid_a, 0}).error().code(), ENOMEM);
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid_b, 7471}));
  EXPECT_THAT(three.events, ElementsAre(Type::kAddrError));
  EXPECT_EQ(three.status, -ENOMEM);
  ids_left = 1;
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid_b, 7471}));
  ASSERT_TRUE(id.resolve_route());
  ASSERT_TRUE(id.connect(with(0x12)));
  rig.run();
  EXPECT_EQ(three.events.back(), Type::kRejected);
  EXPECT_EQ(three.status, static_cast<int>(RejectReason::kNoResources));
  three.id.reset();
  one.id.reset();
  two.id.reset();
  two.requests.clear();
  EXPECT_EQ(ids_left, 3);
}

TEST_F(Ids, JoinGroups) {
  CmId& id = make(one, kNetnsA, CmService::kUd);
  const verbs::Gid group = gid("239.1.2.3");
  EXPECT_EQ(id.join(group, 7).error().code(), EINVAL) << "not bound to a vdevice";
  ASSERT_TRUE(id.bind({gid_a, 0}));
  EXPECT_EQ(id.join(gid_b, 7).error().code(), EINVAL) << "not a group";
  ASSERT_TRUE(id.join(group, 7));
  EXPECT_THAT(one.events, ElementsAre(Type::kMulticastJoin));
  EXPECT_EQ(one.group, group);
  EXPECT_EQ(one.token, 7u);
  EXPECT_EQ(one.param.qpn, 0xffffffu);
  EXPECT_EQ(one.param.qkey, kDatagramQkey);
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid("ff0e::1"), 0}));
  ASSERT_TRUE(id.join(gid("ff0e::1"), 8));
  EXPECT_EQ(one.group, gid("ff0e::1"));
  CmId& connected = make(two, kNetnsB);
  ASSERT_TRUE(connected.bind({gid_b, 0}));
  EXPECT_EQ(connected.join(group, 7).error().code(), EINVAL) << "connected ids cannot join";
}

TEST_F(Ids, DisconnectOnBothSides) {
  establish_ids();
  one.events.clear();
  two.events.clear();
  ASSERT_TRUE(one.id->disconnect());
  rig.run();
  EXPECT_THAT(two.events, ElementsAre(Type::kDisconnected));
  EXPECT_THAT(one.events, IsEmpty());
  ASSERT_TRUE(two.last().disconnect());
  rig.run(std::chrono::seconds(2));
  EXPECT_THAT(one.events, ElementsAre(Type::kDisconnected, Type::kTimewaitExit));
  EXPECT_THAT(two.events, ElementsAre(Type::kDisconnected, Type::kTimewaitExit));
  EXPECT_TRUE(one.id->disconnect());  // again: nothing left to do
}

TEST_F(Ids, DestroyedOnesDisconnectThePeer) {
  establish_ids();
  one.id.reset();
  rig.run();
  EXPECT_EQ(two.events.back(), Type::kDisconnected);
}

// Destroys its id, and ids that it received, in the first event of type `when`.
struct Hasty : Program {
  Type when{};
  void on_event(CmId& at, CmEvent& event) override {
    Program::on_event(at, event);
    if (event.type != when) return;
    id.reset();
    requests.clear();
  }
};

TEST_F(Ids, MayBeDestroyedInTheirEvents) {
  for (const Type when : {Type::kConnectRequest, Type::kEstablished, Type::kDisconnected}) {
    Hasty server_of_hasty;
    server_of_hasty.when = when;
    CmId& listening = make(server_of_hasty, kNetnsB);
    ASSERT_TRUE(listening.bind({gid_b, 7471}));
    ASSERT_TRUE(listening.listen(4));
    call();
    if (!server_of_hasty.requests.empty()) {
      ASSERT_TRUE(server_of_hasty.last().accept(with(0x33)));
      rig.run();
      ASSERT_TRUE(one.id->confirm());
      rig.run();
      (void)one.id->disconnect();
    }
    rig.run(std::chrono::minutes(1));
    EXPECT_EQ(one.events.back(),
              when == Type::kConnectRequest ? Type::kRejected : Type::kTimewaitExit);
    EXPECT_THAT(states(host_b.mux), IsEmpty());
    EXPECT_THAT(host_b.mux.listeners(), SizeIs(1));  // the rig's own
  }
}

TEST_F(Ids, GiveQueuePairsWhatTheyNeed) {
  serve();
  call();
  verbs::QpAttributes active{}, passive{};
  EXPECT_EQ(one.id->qp_attributes(verbs::QpState::kRtr, &active).error().code(), EINVAL);
  EXPECT_EQ(one.id->qp_attributes(verbs::QpState::kInit, &active).value(),
            verbs::kQpState | verbs::kQpPkeyIndex | verbs::kQpPort | verbs::kQpAccessFlags);
  EXPECT_EQ(active.access_flags, verbs::kRemoteWrite | verbs::kRemoteRead | verbs::kRemoteAtomic);
  ASSERT_TRUE(two.last().accept(with(0x22)));
  rig.run();
  for (const auto state : {verbs::QpState::kRtr, verbs::QpState::kRts}) {
    const auto mask = one.id->qp_attributes(state, &active);
    ASSERT_TRUE(mask);
    EXPECT_EQ(two.last().qp_attributes(state, &passive).value(), *mask);
  }
  EXPECT_EQ(active.dest_qpn, 0x22u);
  EXPECT_EQ(passive.dest_qpn, 0x11u);
  EXPECT_EQ(active.rq_psn, 0xaaaaaau);
  EXPECT_EQ(active.rq_psn, passive.sq_psn);
  EXPECT_EQ(active.sq_psn, passive.rq_psn);
  EXPECT_EQ(0, std::memcmp(active.av.dgid, gid_b.bytes.data(), 16));
  EXPECT_EQ(0, std::memcmp(passive.av.dgid, gid_a.bytes.data(), 16));
  EXPECT_EQ(active.path_mtu, passive.path_mtu);
  EXPECT_EQ(active.max_rd_atomic, passive.max_dest_rd_atomic);
  EXPECT_EQ(active.max_dest_rd_atomic, passive.max_rd_atomic);
  EXPECT_EQ(active.timeout, 17);
  EXPECT_EQ(passive.timeout, 17);
  EXPECT_EQ(active.retry_cnt, 7);
  EXPECT_EQ(active.rnr_retry, 7);
}

TEST_F(Ids, AreRejectedWithReasonAndData) {
  const std::vector<uint8_t> no(148, 9);
  serve();
  call();
  ASSERT_TRUE(two.last().reject(no, RejectReason::kConsumer));
  rig.run();
  EXPECT_EQ(one.events.back(), Type::kRejected);
  EXPECT_EQ(one.status, 28);
  EXPECT_EQ(one.data, no);
  two.take = false;
  call();
  EXPECT_EQ(one.events.back(), Type::kRejected);
  two.id.reset();
  call();
  EXPECT_EQ(one.status, 8);
}

TEST_F(Ids, TellWhatCannotBeReached) {
  CmId& id = make(one, kNetnsA);
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid("10.9.9.9"), 1}));
  EXPECT_THAT(one.events, ElementsAre(Type::kAddrError));
  EXPECT_EQ(one.status, -EHOSTUNREACH);
  rig.lose(CmAttribute::kReq, 1000);
  call();
  rig.run(std::chrono::minutes(5));
  EXPECT_EQ(one.events.back(), Type::kUnreachable);
  EXPECT_EQ(one.status, -ETIMEDOUT);
}

TEST_F(Ids, ResolveDatagrams) {
  const std::vector<uint8_t> hello(180, 1), welcome(136, 2);
  serve(CmService::kUd);
  call(CmService::kUd, hello);
  EXPECT_EQ(two.data, hello);
  ConnParam answer = with(0x22, welcome);
  ASSERT_TRUE(two.last().accept(answer));
  rig.run();
  EXPECT_THAT(one.events,
              ElementsAre(Type::kAddrResolved, Type::kRouteResolved, Type::kEstablished));
  EXPECT_EQ(one.param.qpn, 0x22u);
  EXPECT_EQ(one.param.qkey, kDatagramQkey);
  EXPECT_EQ(one.data, welcome);
  verbs::QpAttributes attributes{};
  EXPECT_EQ(one.id->qp_attributes(verbs::QpState::kInit, &attributes).value(),
            verbs::kQpState | verbs::kQpPkeyIndex | verbs::kQpPort | verbs::kQpQkey);
  call(CmService::kUd);
  ASSERT_TRUE(two.last().reject({}, RejectReason::kConsumer));
  rig.run();
  EXPECT_EQ(one.events.back(), Type::kUnreachable);
  EXPECT_EQ(one.status, static_cast<int>(wire::SidrStatus::kReject));
}

TEST_F(Ids, PrivateDataHasItsSizes) {
  const std::vector<uint8_t> long_data(181, 0);
  CmId& id = make(one, kNetnsA);
  ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid_b, 7471}));
  EXPECT_EQ(id.connect(with(0x11)).error().code(), EINVAL);  // no route yet
  ASSERT_TRUE(id.resolve_route());
  EXPECT_EQ(id.connect(with(0x11, PrivateData(long_data).first(57))).error().code(), EINVAL);
  EXPECT_TRUE(id.connect(with(0x11, PrivateData(long_data).first(56))));
  CmId& datagram = make(one, kNetnsA, CmService::kUd);
  ASSERT_TRUE(datagram.resolve_addr(std::nullopt, {gid_b, 7471}));
  ASSERT_TRUE(datagram.resolve_route());
  EXPECT_EQ(datagram.connect(with(0x11, long_data)).error().code(), EINVAL);
}

TEST_F(Ids, BindLikeSockets) {
  CmId& id = make(one, kNetnsA);
  EXPECT_EQ(id.bind({gid("10.0.0.77"), 7000}).error().code(), EADDRNOTAVAIL);
  ASSERT_TRUE(id.bind({gid_a, 7000}));
  EXPECT_EQ(id.bind({gid_a, 7001}).error().code(), EINVAL);
  Program other;
  EXPECT_EQ(make(other, kNetnsA).bind({gid_a, 7000}).error().code(), EADDRINUSE);
  one.id.reset();
  EXPECT_TRUE(other.id->bind({gid_a, 7000}));
  ASSERT_TRUE(make(one, kNetnsA).listen(1));  // unbound: any port, anywhere
  EXPECT_NE(one.id->local().port, 0);
}

TEST_F(Ids, OfBothFamiliesListenSideBySide) {
  ASSERT_TRUE(b.set_gids({gid_b, gid("fd00::2")}));
  serve();
  Program six;
  CmId& id = make(six, kNetnsB);
  six.id->options().family_only = true;
  EXPECT_EQ(id.bind({gid("::"), 7471}).error().code(), EADDRNOTAVAIL);
  two.id.reset();
  ASSERT_TRUE(id.bind({gid("::"), 7471}));
  ASSERT_TRUE(id.listen(4));
  call();
  EXPECT_EQ(one.status, 8);
  EXPECT_THAT(six.requests, IsEmpty());
}

TEST_F(Ids, AtAWildcardListenOnDevicesThatComeLater) {
  of_b.clear();
  serve();
  call();
  EXPECT_EQ(one.status, 8);
  two.id->device_added(b);
  call();
  EXPECT_THAT(two.requests, SizeIs(1));
}

TEST_F(Ids, AreToldWhenTheirDeviceGoes) {
  establish_ids();
  two.last().device_removed(b);
  EXPECT_EQ(two.events.back(), Type::kDeviceRemoval);
  EXPECT_EQ(two.last().disconnect().error().code(), ENODEV);
  rig.run();
  EXPECT_EQ(one.events.back(), Type::kDisconnected);
  two.id->device_removed(b);  // a wildcard listener stays, and waits for other vdevices
  EXPECT_EQ(two.id->state(), CmIdState::kListening);
}

TEST_F(Ids, AreEstablishedByDataToo) {
  serve();
  call();
  ASSERT_TRUE(two.last().accept(with(0x22)));
  rig.run();
  ASSERT_TRUE(two.last().establish());
  EXPECT_EQ(two.events.back(), Type::kEstablished);
  EXPECT_EQ(two.last().establish().error().code(), EISCONN);
  ASSERT_TRUE(one.id->confirm());
  rig.run();
  EXPECT_THAT(two.events, SizeIs(2));
}

}  // namespace
}  // namespace vrdma::qp1mux
