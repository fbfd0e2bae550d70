// The life of a connection: every transition, and lost, late or duplicate messages.
#include "qp1mux/connection.h"

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr auto kHour = std::chrono::hours(1);

struct Connections : TwoHosts {};

TEST_F(Connections, AreMadeByThreeMessages) {
  ask();
  EXPECT_EQ(client.state(), State::kReqSent);
  rig.run();
  ASSERT_THAT(server.sides, SizeIs(1));
  EXPECT_EQ(server.last().state(), State::kReqReceived);
  EXPECT_EQ(server.last().connection.remote_id(), client.connection.local_id());
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  EXPECT_EQ(server.last().state(), State::kRepSent);
  rig.run();
  EXPECT_EQ(client.state(), State::kRepReceived);
  EXPECT_EQ(client.connection.remote_id(), server.last().connection.local_id());
  ASSERT_TRUE(client.connection.send_rtu());
  EXPECT_EQ(client.state(), State::kEstablished);
  rig.run(kHour);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived));
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRtuReceived));
  EXPECT_THAT(rig.letters, SizeIs(3));
}

TEST_F(Connections, CarryWhatWasSaid) {
  const std::vector<uint8_t> of_req(92, 1), of_rep(196, 2), of_rtu(224, 3);
  Req asked = req();
  asked.path.hop_limit = 1;
  asked.path.traffic_class = 0x20;
  asked.path.roce = RoceVersion::kV1;
  asked.private_data = of_req;
  ask(client, asked);
  rig.run();
  EXPECT_EQ(server.req.path.local, gid_b);
  EXPECT_EQ(server.req.path.remote, gid_a);
  EXPECT_EQ(server.req.path.roce, RoceVersion::kV1);
  EXPECT_EQ(server.req.service_id, kService);
  EXPECT_EQ(server.req.ca_guid, 0xau);
  EXPECT_EQ(server.req.qpn, asked.qpn);
  EXPECT_EQ(server.req.starting_psn, 0x111111u);
  EXPECT_EQ(server.req.responder_resources, 2);  // converted to this side's view
  EXPECT_EQ(server.req.initiator_depth, 4);
  EXPECT_EQ(server.req.path_mtu, asked.path_mtu);
  EXPECT_EQ(server.req.ack_timeout, asked.ack_timeout);
  EXPECT_EQ(server.data, of_req);

  Rep answer = rep();
  answer.private_data = of_rep;
  ASSERT_TRUE(server.last().connection.send_rep(answer));
  EXPECT_EQ(rig.letters.back().roce, RoceVersion::kV1);
  rig.run();
  EXPECT_EQ(client.rep.ca_guid, 0xbu);
  EXPECT_EQ(client.rep.qpn, answer.qpn);
  EXPECT_EQ(client.rep.starting_psn, 0x222222u);
  EXPECT_EQ(client.rep.responder_resources, 3);
  EXPECT_EQ(client.rep.initiator_depth, 6);
  EXPECT_EQ(client.data, of_rep);

  ASSERT_TRUE(client.connection.send_rtu(of_rtu));
  rig.run();
  EXPECT_EQ(server.last().data, of_rtu);

  const uint64_t tid = rig.last(CmAttribute::kReq).mad.header.transaction_id;
  EXPECT_EQ(rig.last(CmAttribute::kRep).mad.header.transaction_id, tid);
  EXPECT_EQ(rig.last(CmAttribute::kRtu).mad.header.transaction_id, tid);
}

TEST_F(Connections, OfXrcNameTheTargetAsAnEec) {
  Req asked = req();
  asked.transport = wire::CmTransport::kExtended;
  ask(client, asked);
  rig.run();
  EXPECT_EQ(server.req.transport, wire::CmTransport::kExtended);
  EXPECT_EQ(server.req.initiator_depth, 0);
  EXPECT_EQ(server.req.responder_resources, 2);
  const Rep answer = rep();
  ASSERT_TRUE(server.last().connection.send_rep(answer));
  EXPECT_EQ(rig.last(CmAttribute::kRep).mad.as<wire::CmRep>().eecn, answer.qpn);
  EXPECT_EQ(rig.last(CmAttribute::kRep).mad.as<wire::CmRep>().qpn, 0u);
  rig.run();
  EXPECT_EQ(client.rep.qpn, answer.qpn);
  EXPECT_TRUE(client.rep.srq);
}

TEST_F(Connections, EndByDreqAndDrepAndTimewait) {
  establish();
  const std::vector<uint8_t> of_dreq(220, 4), of_drep(224, 5);
  ASSERT_TRUE(client.connection.send_dreq(of_dreq));
  EXPECT_EQ(client.state(), State::kDreqSent);
  rig.run();
  Side& passive = server.last();
  EXPECT_EQ(passive.state(), State::kDreqReceived);
  EXPECT_EQ(passive.data, of_dreq);
  ASSERT_TRUE(passive.connection.send_drep(of_drep));
  EXPECT_EQ(passive.state(), State::kTimewait);
  rig.run();
  EXPECT_EQ(client.state(), State::kTimewait);
  EXPECT_EQ(client.data, of_drep);
  EXPECT_NE(rig.last(CmAttribute::kDreq).mad.header.transaction_id,
            rig.last(CmAttribute::kReq).mad.header.transaction_id);
  EXPECT_EQ(rig.last(CmAttribute::kDreq).mad.header.transaction_id,
            rig.last(CmAttribute::kDrep).mad.header.transaction_id);
  rig.run(time_of(17) - milliseconds(1));
  EXPECT_EQ(client.state(), State::kTimewait);
  rig.run(milliseconds(2));
  EXPECT_EQ(client.state(), State::kClosed);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived, EventKind::kDrepReceived,
                                         EventKind::kTimewaitExit));
  EXPECT_THAT(passive.events, ElementsAre(EventKind::kRtuReceived, EventKind::kDreqReceived,
                                          EventKind::kTimewaitExit));
  EXPECT_THAT(states(host_a.mux), IsEmpty());
  EXPECT_THAT(states(host_b.mux), IsEmpty());
}

TEST_F(Connections, EndByThePassiveSideToo) {
  establish();
  ASSERT_TRUE(server.last().connection.send_dreq());
  rig.run();
  EXPECT_EQ(client.state(), State::kDreqReceived);
  ASSERT_TRUE(client.connection.send_drep());
  rig.run(kMinute);
  EXPECT_EQ(client.state(), State::kClosed);
  EXPECT_EQ(server.last().state(), State::kClosed);
}

TEST_F(Connections, EndOnceWhenBothAskAtOnce) {
  establish();
  ASSERT_TRUE(client.connection.send_dreq());
  ASSERT_TRUE(server.last().connection.send_dreq());
  rig.run(kMinute);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived, EventKind::kDrepReceived,
                                         EventKind::kTimewaitExit));
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRtuReceived, EventKind::kDrepReceived,
                                                EventKind::kTimewaitExit));
}

TEST_F(Connections, ALostReqCostsFiftyMillisecondsAtMost) {
  rig.lose(CmAttribute::kReq, 1);
  agree();
  ask();
  rig.run(milliseconds(50));
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_EQ(a.counters().repeated[Counters::index(CmAttribute::kReq)], 1u);
}

TEST_F(Connections, ALostRepOrRtuIsSentAgain) {
  for (const auto lost : {CmAttribute::kRep, CmAttribute::kRtu}) {
    rig.lose(lost, 1);
    agree();
    ask();
    rig.run(milliseconds(50));
    EXPECT_EQ(client.state(), State::kEstablished);
    EXPECT_EQ(server.last().state(), State::kEstablished);
  }
}

TEST_F(Connections, ALostDreqOrDrepIsSentAgain) {
  for (const auto lost : {CmAttribute::kDreq, CmAttribute::kDrep}) {
    establish();
    rig.lose(lost, 1);
    server.last().then = [this](const Event& event) {
      if (event.kind == EventKind::kDreqReceived) {
        EXPECT_TRUE(server.last().connection.send_drep());
      }
    };
    ASSERT_TRUE(client.connection.send_dreq());
    rig.run(milliseconds(100));
    EXPECT_TRUE(client.saw(EventKind::kDrepReceived));
    EXPECT_EQ(client.state(), State::kTimewait);
    rig.run(kMinute);
  }
}

TEST_F(Connections, GiveUpAfterMaxCmRetries) {
  rig.lose(CmAttribute::kReq, 1000);
  Req asked = req();
  asked.max_cm_retries = 3;
  ask(client, asked);
  const auto nominal = time_of(20) + 2 * time_of(16);
  rig.run(4 * nominal - milliseconds(1));
  EXPECT_THAT(client.events, IsEmpty());
  rig.run(milliseconds(2));
  EXPECT_THAT(client.events, ElementsAre(EventKind::kReqError));
  EXPECT_THAT(server.sides, IsEmpty());
  EXPECT_EQ(rig.last(CmAttribute::kRej).mad.as<wire::CmRej>().reason,
            static_cast<uint16_t>(RejectReason::kTimeout));
  // 40 ms, doubled up to the nominal interval, then three more; not one every 40 ms.
  EXPECT_LE(rig.sent(CmAttribute::kReq), 12u);
  rig.run(kMinute);
  EXPECT_THAT(states(host_a.mux), IsEmpty());
}

TEST_F(Connections, RepWithoutRtuGivesUpAndTellsThePeer) {
  establish();  // a host that was heard of before; see foreign_test.cc for others
  rig.lose(CmAttribute::kRtu, 1000);
  Side second;
  confirm(second);
  ask(second, req());
  rig.run(kHour);
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRepError));
  EXPECT_TRUE(second.saw(EventKind::kRejReceived));
  EXPECT_EQ(second.reason, RejectReason::kTimeout);
  EXPECT_EQ(second.state(), State::kClosed);
}

TEST_F(Connections, ALateRtuLearnsThatAllIsOver) {
  rig.fate = [](const Letter& letter) -> std::vector<base::Duration> {
    if (letter.attribute() == CmAttribute::kRtu || letter.attribute() == CmAttribute::kRej)
      return {};
    return {{}};
  };
  agree();
  ask();
  while (server.sides.empty() || server.last().state() != State::kTimewait)
    rig.run(milliseconds(100));
  EXPECT_EQ(client.state(), State::kEstablished);
  rig.lose(CmAttribute::kRtu, 0);
  rig.inject(rig.last(CmAttribute::kRtu));
  rig.run();
  EXPECT_EQ(client.reason, RejectReason::kTimeout);
}

TEST_F(Connections, DreqWithoutAnswerGivesUp) {
  establish();
  rig.lose(CmAttribute::kDreq, 1000);
  ASSERT_TRUE(client.connection.send_dreq());
  rig.run(kHour);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived, EventKind::kDreqError,
                                         EventKind::kTimewaitExit));
}

TEST_F(Connections, StandWhenDataCameBeforeTheRtu) {
  rig.lose(CmAttribute::kRtu, 1000);
  agree();
  ask();
  rig.run();
  ASSERT_EQ(server.last().state(), State::kRepSent);
  ASSERT_TRUE(server.last().connection.establish());
  rig.run(kHour);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_THAT(server.last().events, IsEmpty());
}

TEST_F(Connections, WaitLongerAfterAnMra) {
  Req asked = req();
  asked.max_cm_retries = 1;
  ask(client, asked);
  rig.run();
  ASSERT_TRUE(server.last().connection.send_mra(23));  // 34 s
  rig.run(std::chrono::seconds(30));
  EXPECT_THAT(client.events, ElementsAre(EventKind::kMraReceived));
  EXPECT_EQ(rig.sent(CmAttribute::kReq), 1u);
  agree();
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run();
  EXPECT_EQ(client.state(), State::kEstablished);
}

TEST_F(Connections, AnMraCannotAskForEver) {
  Req asked = req();
  asked.max_cm_retries = 2;
  ask(client, asked);
  rig.run();
  ASSERT_TRUE(server.last().connection.send_mra(31));  // 2.4 h, and again for each repeated REQ
  rig.run(std::chrono::minutes(4));
  EXPECT_TRUE(client.saw(EventKind::kReqError));
}

TEST_F(Connections, TheActiveSideMayAskForTimeToo) {
  ask();
  rig.run();
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run();
  ASSERT_TRUE(client.connection.send_mra(22));
  rig.run(std::chrono::seconds(15));
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kMraReceived));
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 1u);
  ASSERT_TRUE(client.connection.send_rtu());
  rig.run();
  EXPECT_EQ(server.last().state(), State::kEstablished);
}

TEST_F(Connections, DuplicatesAreNotShown) {
  rig.fate = [](const Letter&) { return std::vector<base::Duration>{{}, {}, milliseconds(3)}; };
  establish();
  rig.run(milliseconds(10));
  EXPECT_THAT(server.sides, SizeIs(1));
  ASSERT_TRUE(client.connection.send_dreq());
  rig.run(milliseconds(1));
  ASSERT_TRUE(server.last().connection.send_drep());
  rig.run(kMinute);
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRepReceived, EventKind::kDrepReceived,
                                         EventKind::kTimewaitExit));
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRtuReceived, EventKind::kDreqReceived,
                                                EventKind::kTimewaitExit));
  EXPECT_GT(b.counters().duplicates[Counters::index(CmAttribute::kReq)], 0u);
}

TEST_F(Connections, ADuplicateReqAfterAnMraGetsTheMraAgain) {
  ask();
  rig.run();
  ASSERT_TRUE(server.last().connection.send_mra(20));
  rig.inject(rig.last(CmAttribute::kReq));
  EXPECT_EQ(rig.sent(CmAttribute::kMra), 2u);
}

TEST_F(Connections, ARepThatOvertakesTheMraIsGood) {
  rig.fate = [](const Letter& letter) {
    const bool mra = letter.attribute() == CmAttribute::kMra;
    return std::vector<base::Duration>{milliseconds(mra ? 10 : 1)};
  };
  confirm(client);
  ask();
  rig.run(milliseconds(1));
  ASSERT_TRUE(server.last().connection.send_mra(20));
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run(kMinute);
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_FALSE(client.saw(EventKind::kMraReceived));
}

TEST_F(Connections, DestroyedOnesSayGoodbye) {
  establish();
  client.connection.reset();
  rig.run();
  EXPECT_EQ(server.last().state(), State::kDreqReceived);
  server.last().connection.reset();
  EXPECT_EQ(states(host_b.mux), std::vector{State::kTimewait});
  rig.run(kMinute);
  EXPECT_THAT(states(host_a.mux), IsEmpty());
  EXPECT_THAT(states(host_b.mux), IsEmpty());
}

TEST_F(Connections, DestroyedWhileAskingRejectWithTimeoutAndTheGuid) {
  ask();
  rig.run();
  client.connection.reset();
  rig.run();
  Side& passive = server.last();
  EXPECT_THAT(passive.events, ElementsAre(EventKind::kRejReceived));
  EXPECT_EQ(passive.reason, RejectReason::kTimeout);
  EXPECT_THAT(passive.ari, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0xa));
}

TEST_F(Connections, DestroyedWhileAskedRejectAsTheConsumer) {
  ask();
  rig.run();
  server.last().connection.reset();
  rig.run();
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRejReceived));
  EXPECT_EQ(client.reason, RejectReason::kConsumer);
}

TEST_F(Connections, MayBeDestroyedInTheirOwnEvent) {
  server.answer = [this](Side& side) {
    EXPECT_TRUE(side.connection.send_rep(rep()));
    side.then = [&side](const Event&) { side.connection.reset(); };
  };
  client.then = [this](const Event& event) {
    if (event.kind == EventKind::kRepReceived) {
      EXPECT_TRUE(client.connection.send_rtu());
    }
    if (event.kind == EventKind::kDreqReceived) client.connection.reset();
  };
  ask();
  rig.run(kMinute);
  EXPECT_THAT(states(host_a.mux), IsEmpty());
  EXPECT_THAT(states(host_b.mux), IsEmpty());
}

TEST_F(Connections, CommandsAreRefusedInOtherStates) {
  client.connection = a.connection(&client);
  EXPECT_EQ(client.connection.send_rtu().error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_rep(rep()).error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_rej({}).error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_dreq().error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_drep().error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_mra(20).error().code(), EINVAL);
  EXPECT_EQ(client.connection.establish().error().code(), EINVAL);
  EXPECT_EQ(client.connection.send_sidr_rep({}).error().code(), EINVAL);
  establish();
  EXPECT_EQ(client.connection.send_req(req()).error().message(),
            "REQ is not possible in state ESTABLISHED");
  EXPECT_EQ(client.connection.send_sidr_req({}).error().code(), EINVAL);
  EXPECT_EQ(Connection().send_rtu().error().code(), ENODEV);
}

TEST_F(Connections, ValuesOutOfRangeAreRefused) {
  client.connection = a.connection(&client);
  const std::vector<uint8_t> long_data(225, 0);
  const auto refused = [&](auto change) {
    Req bad = req();
    change(bad);
    const auto result = client.connection.send_req(bad);
    return !result && result.error().code() == EINVAL;
  };
  EXPECT_TRUE(refused([&](Req& r) { r.private_data = PrivateData(long_data).first(93); }));
  EXPECT_TRUE(refused([](Req& r) { r.qpn = 1 << 24; }));
  EXPECT_TRUE(refused([](Req& r) { r.starting_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Req& r) { r.path_mtu = 6; }));
  EXPECT_TRUE(refused([](Req& r) { r.retry_count = 8; }));
  EXPECT_TRUE(refused([](Req& r) { r.rnr_retry_count = 8; }));
  EXPECT_TRUE(refused([](Req& r) { r.max_cm_retries = 16; }));
  EXPECT_TRUE(refused([](Req& r) { r.ack_timeout = 32; }));
  EXPECT_TRUE(refused([](Req& r) { r.transport = wire::CmTransport::kRd; }));
  EXPECT_TRUE(refused([](Req& r) { r.path.remote = gid("ff0e::1"); }));
  EXPECT_THAT(rig.letters, IsEmpty());
  ASSERT_TRUE(client.connection.send_req(req()));
  rig.run();
  Rep bad = rep();
  bad.private_data = PrivateData(long_data).first(197);
  EXPECT_EQ(server.last().connection.send_rep(bad).error().code(), EINVAL);
  EXPECT_EQ(server.last().connection.send_mra(20, long_data).error().code(), EINVAL);
  EXPECT_EQ(server.last().connection.send_rej({.private_data = long_data}).error().code(), EINVAL);
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run();
  EXPECT_EQ(client.connection.send_rtu(long_data).error().code(), EINVAL);
  ASSERT_TRUE(client.connection.send_rtu());
  EXPECT_EQ(client.connection.send_dreq(long_data).error().code(), EINVAL);
  ASSERT_TRUE(client.connection.send_dreq());
  rig.run();
  EXPECT_EQ(server.last().connection.send_drep(long_data).error().code(), EINVAL);
}

TEST_F(Connections, AreListed) {
  const wire::IpHeader header = wire::encode({gid_a, gid_b, 4711});
  Req asked = req();
  asked.private_data = {reinterpret_cast<const uint8_t*>(&header), sizeof header};
  agree();
  ask(client, asked);
  rig.run(milliseconds(1));
  rig.run(milliseconds(100));
  const auto list = host_b.mux.connections();
  ASSERT_THAT(list, SizeIs(1));
  EXPECT_EQ(list[0].vdevice, "b");
  EXPECT_EQ(list[0].tenant, "tenant-of-b");
  EXPECT_EQ(list[0].fabric, "red");
  EXPECT_STREQ(state_text(list[0].state), "ESTABLISHED");
  EXPECT_FALSE(list[0].active);
  EXPECT_FALSE(list[0].datagram);
  EXPECT_EQ(list[0].local, gid_b);
  EXPECT_EQ(list[0].remote, gid_a);
  EXPECT_EQ(list[0].service_id, kService);
  EXPECT_EQ(list[0].source_port, 4711);
  EXPECT_EQ(list[0].remote_qpn, asked.qpn);
  EXPECT_EQ(list[0].local_qpn, client.rep.qpn);
  EXPECT_EQ(list[0].local_id, client.connection.remote_id());
  EXPECT_EQ(list[0].remote_id, client.connection.local_id());
  EXPECT_EQ(list[0].age, milliseconds(101));
  EXPECT_TRUE(host_a.mux.connections()[0].active);
  EXPECT_EQ(host_a.mux.connections()[0].source_port, 4711);
}

}  // namespace
}  // namespace vrdma::qp1mux
