// Illegitimate or outdated messages of a peer or a neighbour: stale and unknown connections, forged
// numbers and addresses, meaningless messages.
#include "tests/unit/qp1mux/foreign.h"

#include "qp1mux/exchange.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(Foreign, ReqWithoutListenerIsRefused) {
  Req asked = req();
  asked.service_id = kService + 1;
  ask(client, asked);
  rig.run();
  EXPECT_THAT(client.events, ElementsAre(EventKind::kRejReceived));
  EXPECT_EQ(client.reason, RejectReason::kInvalidServiceId);
  EXPECT_EQ(b.counters().rejects_sent[8], 1u);
  EXPECT_EQ(a.counters().rejects_received[8], 1u);
  EXPECT_THAT(states(host_b.mux), IsEmpty());
  rig.run(kMinute);
  EXPECT_THAT(client.events, SizeIs(1));  // never established: no TIMEWAIT event
  EXPECT_EQ(client.state(), State::kClosed);
}

TEST_F(Foreign, WhatNobodyOwnsIsAnsweredBySilence) {
  Letter letter = letter_of_req();
  letter.destination = gid("10.0.0.99");
  host_b.mux.receive(letter.packet());
  letter.destination = gid_b;
  letter.fabric = "blue";
  host_b.mux.receive(letter.packet());
  EXPECT_EQ(host_b.mux.unowned(), 2u);
  EXPECT_THAT(rig.letters, IsEmpty());
}

TEST_F(Foreign, ReqOfAnotherAddressThanThePacketIsRefused) {
  for (const bool local : {true, false}) {
    Letter letter = letter_of_req();
    auto& req = letter.mad.as<wire::CmReq>();
    (local ? req.primary.local_gid : req.primary.remote_gid) = gid("10.0.0.77");
    rig.inject(letter);
    EXPECT_EQ(last_rej(), RejectReason::kInvalidGid);
    EXPECT_THAT(server.sides, IsEmpty());
  }
}

TEST_F(Foreign, ReqOfAnUnknownTransportOrMtuIsRefused) {
  Letter letter = letter_of_req();
  letter.mad.as<wire::CmReq>().set_transport(wire::CmTransport::kRd);
  rig.inject(letter);
  EXPECT_EQ(last_rej(), RejectReason::kInvalidTransport);
  letter.mad.as<wire::CmReq>().set_transport(wire::CmTransport::kRc);
  letter.mad.as<wire::CmReq>().set_mtu(0);
  rig.inject(letter);
  EXPECT_EQ(last_rej(), RejectReason::kInvalidMtu);
  EXPECT_THAT(server.sides, IsEmpty());
}

TEST_F(Foreign, AnotherReqOfTheSameQueuePairEndsTheOldOneWhenItIsProven) {
  establish();
  Side& old = server.last();
  Letter letter = rig.last(CmAttribute::kReq);
  letter.mad.as<wire::CmReq>().local_id = 0x5eed;  // the peer has restarted, or it is not the peer
  letter.mad.header.transaction_id = 0x5eed;
  rig.letters.clear();
  rig.inject(letter);
  ASSERT_THAT(server.sides, SizeIs(2));
  EXPECT_EQ(server.last().state(), State::kRepSent);
  EXPECT_EQ(old.state(), State::kEstablished);
  Letter rtu = letter;
  auto& message = wire::begin<wire::CmRtu>(rtu.mad, 0x5eed);
  message.local_id = 0x5eed;
  message.remote_id = rig.last(CmAttribute::kRep).mad.as<wire::CmRep>().local_id;
  rig.inject(rtu);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_EQ(old.state(), State::kDreqSent);
}

TEST_F(Foreign, AnotherReqOfTheSameQueuePairThatIsNotProvenEndsNothing) {
  establish();
  Side& old = server.last();
  Letter letter = rig.last(CmAttribute::kReq);
  for (uint32_t i = 0; i < 5; ++i) {
    letter.mad.as<wire::CmReq>().local_id = 0x5eed + i;
    letter.mad.header.transaction_id = 0x5eed + i;
    rig.inject(letter);
  }
  rig.run(kMinute);
  EXPECT_EQ(old.state(), State::kEstablished);
  EXPECT_EQ(client.state(), State::kEstablished);
}

// A peer that never learned the id of this side refuses without it; any host can guess its own.
TEST_F(Foreign, ARejThatNamesNoIdEndsNoConnection) {
  ask();
  rig.run();
  Letter letter = rig.last(CmAttribute::kReq);
  const auto refuse = [&](const Side& side) {
    auto& rej = wire::begin<wire::CmRej>(letter.mad, 0x5eed);
    rej.local_id = side.connection.local_id();
    rej.reason = static_cast<uint16_t>(RejectReason::kTimeout);
    rig.inject(letter);
  };
  ASSERT_EQ(server.last().state(), State::kReqReceived);
  refuse(client);
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRejReceived));
  client.connection.reset();
  rig.run(kMinute);

  establish();
  refuse(client);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_TRUE(server.last().connection.send_dreq());
  refuse(client);
  EXPECT_EQ(server.last().state(), State::kDreqSent);
  EXPECT_EQ(b.counters().strays, 2u);
}

// A REQ in the name of a host, with the queue pair that the host will connect next, may come first.
TEST_F(Foreign, AReqThatIsNotProvenKeepsNobodyOut) {
  for (const bool known : {false, true}) {
    if (known) {  // the host has been here
      establish();
      client.connection.reset();
      rig.run(kMinute);
    }
    Letter letter = letter_of_silent(20, "10.0.0.1");
    server.answer = nullptr;
    const Req asked = req();
    letter.mad.as<wire::CmReq>().local_id = 0x5eed;
    letter.mad.as<wire::CmReq>().qpn = asked.qpn;
    letter.mad.header.transaction_id = 0x5eed;
    rig.inject(letter);
    Side& forged = server.last();
    ASSERT_EQ(forged.state(), State::kReqReceived);
    Side second;
    agree();
    confirm(second);
    ask(second, asked);
    rig.run(milliseconds(1));
    EXPECT_EQ(second.state(), State::kEstablished);
    EXPECT_EQ(server.last().state(), State::kEstablished);
    ASSERT_TRUE(forged.connection.send_rep(rep()));
    rig.run(kMinute);
    EXPECT_THAT(forged.events, ElementsAre(EventKind::kRejReceived)) << "of the host itself";
    EXPECT_EQ(server.last().state(), State::kEstablished);
    // The connection that stands has the queue pair: another one must be proven.
    Letter again = letter;
    again.mad.as<wire::CmReq>().local_id = 0x5eee;
    again.mad.header.transaction_id = 0x5eee;
    rig.inject(again);
    rig.run(kMinute);
    EXPECT_EQ(second.state(), State::kEstablished);
  }
}

// Two vdevices of one host are connected. In the name of one of them a REQ of its queue pair and a
// DREQ that would end the connection come from the network.
TEST_F(Foreign, NobodyOnTheNetworkSpeaksForAVdeviceOfThisHost) {
  Endpoint c = attach(host_b, setup("c", 0xc), gid("10.0.0.3"));
  const Letter letter = letter_of_neighbour(c);
  ASSERT_EQ(client.state(), State::kEstablished);
  rig.letters.clear();
  rig.inject(letter);
  Letter dreq = letter;
  auto& message = wire::begin<wire::CmDreq>(dreq.mad, 0x5eed);
  message.local_id = client.connection.local_id();
  message.remote_id = client.connection.remote_id();
  message.remote_qpn = client.rep.qpn;
  rig.inject(dreq);
  EXPECT_EQ(host_b.mux.spoofed(), 2u);
  EXPECT_THAT(rig.letters, IsEmpty()) << "it was answered";
  EXPECT_THAT(server.sides, SizeIs(1));
  EXPECT_EQ(server.last().state(), State::kEstablished);
  dreq.from_network = false;
  rig.inject(dreq);  // the neighbour itself
  EXPECT_NE(server.last().state(), State::kEstablished);
  EXPECT_EQ(host_b.mux.spoofed(), 2u);
}

TEST_F(Foreign, AnotherIslandOfThisHostSpeaksByTheNetwork) {
  const verbs::Gid gid_c = gid("10.0.0.3");
  Endpoint c = attach(host_b, setup("c", 0xc), gid_c);
  EXPECT_TRUE(host_b.mux.are_near("red", gid_b, gid_c));
  c.set_island(7);
  EXPECT_FALSE(host_b.mux.are_near("red", gid_b, gid_c));
  EXPECT_TRUE(host_b.mux.are_near("red", gid_c, gid_c));
  rig.inject(letter_of_neighbour(c));
  EXPECT_EQ(host_b.mux.spoofed(), 0u);
}

TEST_F(Foreign, AnIdUsedAgainIsStale) {
  establish();
  Letter letter = rig.last(CmAttribute::kReq);
  letter.mad.header.transaction_id = 0x5eed;
  rig.inject(letter);
  EXPECT_EQ(last_rej(), RejectReason::kStaleConnection);
  EXPECT_EQ(server.last().state(), State::kEstablished) << "anybody can guess the id";
}

TEST_F(Foreign, ALateReqInTimewaitIsStale) {
  establish();
  const Letter letter = rig.last(CmAttribute::kReq);
  client.connection.reset();
  rig.run();
  server.last().connection.reset();
  rig.run();
  rig.letters.clear();
  rig.inject(letter);
  EXPECT_EQ(last_rej(), RejectReason::kStaleConnection);
  EXPECT_THAT(server.sides, SizeIs(1));
}

TEST_F(Foreign, ARepeatedReqThatWasRefusedIsRefusedAlike) {
  ask();
  rig.run();
  ASSERT_TRUE(server.last().connection.send_rej({.reason = RejectReason::kInvalidMtu}));
  rig.letters.erase(rig.letters.begin() + 1, rig.letters.end());
  rig.inject(rig.last(CmAttribute::kReq));
  EXPECT_EQ(last_rej(), RejectReason::kInvalidMtu);
  EXPECT_THAT(server.sides, SizeIs(1));
}

TEST_F(Foreign, TheRefusedMayTryAgainWithTheSameQueuePair) {
  Req asked = req();
  ask(client, asked);
  rig.run();
  server.last().connection.reset();
  rig.run();
  Side second;
  agree();
  confirm(second);
  ask(second, asked);
  rig.run();
  EXPECT_EQ(second.state(), State::kEstablished);
}

TEST_F(Foreign, RepFromAQueuePairThatIsConnectedIsStale) {
  establish();
  const uint32_t used = client.rep.qpn;
  Side second;
  server.answer = [this, used](Side& side) {
    Rep again = rep();
    again.qpn = used;
    EXPECT_TRUE(side.connection.send_rep(again));
  };
  ask(second, req());
  rig.run();
  EXPECT_THAT(second.events, ElementsAre(EventKind::kRejReceived));
  EXPECT_EQ(second.reason, RejectReason::kStaleConnection);
  EXPECT_THAT(server.last().events, ElementsAre(EventKind::kRejReceived));
  EXPECT_EQ(server.last().reason, RejectReason::kStaleConnection);
  EXPECT_EQ(client.state(), State::kDreqSent);
}

TEST_F(Foreign, UnknownIdsGetWhatTheSpecificationHas) {
  establish();
  Letter rep = rig.last(CmAttribute::kRep);
  rep.mad.as<wire::CmRep>().remote_id = 0x12345678;
  rig.letters.clear();
  rig.inject(rep);
  EXPECT_EQ(last_rej(), RejectReason::kInvalidCommId);
  EXPECT_EQ(rig.last(CmAttribute::kRej).mad.as<wire::CmRej>().local_id, 0x12345678u);

  Letter dreq = rep;
  auto& message = wire::begin<wire::CmDreq>(dreq.mad, 0x77);
  message.local_id = 0x1;
  message.remote_id = 0x2;
  rig.inject(dreq);
  const Letter& drep = rig.last(CmAttribute::kDrep);
  EXPECT_EQ(drep.mad.header.transaction_id, 0x77u);
  EXPECT_EQ(drep.mad.as<wire::CmDrep>().local_id, 0x2u);
  EXPECT_EQ(drep.mad.as<wire::CmDrep>().remote_id, 0x1u);

  Letter lap = rep;
  wire::begin<wire::CmLap>(lap.mad, 0x78);
  rig.inject(lap);
  EXPECT_EQ(rig.last(CmAttribute::kApr).mad.as<wire::CmApr>().status,
            static_cast<uint8_t>(wire::AprStatus::kInvalidCommId));
  EXPECT_EQ(a.counters().strays, 3u);
  EXPECT_EQ(client.state(), State::kEstablished);
}

TEST_F(Foreign, LapIsAnsweredAsUnsupported) {
  establish();
  Letter letter = rig.last(CmAttribute::kRtu);
  auto& lap = wire::begin<wire::CmLap>(letter.mad, 0x79);
  lap.local_id = client.connection.local_id();
  lap.remote_id = client.connection.remote_id();
  lap.remote_qpn = client.rep.qpn;
  rig.inject(letter);
  const auto& apr = rig.last(CmAttribute::kApr).mad.as<wire::CmApr>();
  EXPECT_EQ(apr.status, static_cast<uint8_t>(wire::AprStatus::kUnsupported));
  EXPECT_EQ(apr.remote_id, client.connection.local_id());
  EXPECT_EQ(rig.last(CmAttribute::kApr).mad.header.transaction_id, 0x79u);
}

// A third party with its own address, which knows every id, reaches nothing.
TEST_F(Foreign, AThirdReachesNobodysConnection) {
  establish();
  Endpoint third = attach(host_a, setup("third", 0xc), gid("10.0.0.3"));
  Letter letter = rig.last(CmAttribute::kRtu);
  letter.source = gid("10.0.0.3");
  for (int attribute = 0x10; attribute <= 0x1a; ++attribute) {
    for (const uint32_t qpn : {0u, client.rep.qpn}) {
      auto& message = wire::begin<wire::CmDreq>(letter.mad, 1);
      letter.mad.header.attribute_id = static_cast<uint16_t>(attribute);
      message.local_id = client.connection.local_id();
      message.remote_id = client.connection.remote_id();
      message.remote_qpn = qpn;
      rig.inject(letter);
      rig.run();
      ASSERT_EQ(server.last().state(), State::kEstablished) << attribute;
    }
  }
  EXPECT_THAT(server.last().events, SizeIs(1));
  EXPECT_GT(b.counters().strays, 0u);
  // Nor does it through an endpoint of its own on the victim's host.
  Endpoint neighbour = attach(host_b, setup("neighbour", 0xd), gid("10.0.0.4"));
  letter = rig.last(CmAttribute::kRtu);
  letter.destination = gid("10.0.0.4");
  auto& dreq = wire::begin<wire::CmDreq>(letter.mad, 1);
  dreq.local_id = client.connection.local_id();
  dreq.remote_id = client.connection.remote_id();
  dreq.remote_qpn = client.rep.qpn;
  rig.inject(letter);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_EQ(neighbour.counters().strays, 1u);
}

TEST_F(Foreign, DreqForAnotherQueuePairIsIgnored) {
  establish();
  Letter letter = rig.last(CmAttribute::kRtu);
  auto& dreq = wire::begin<wire::CmDreq>(letter.mad, 1);
  dreq.local_id = client.connection.local_id();
  dreq.remote_id = client.connection.remote_id();
  dreq.remote_qpn = client.rep.qpn + 1;
  rig.letters.clear();
  rig.inject(letter);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_THAT(rig.letters, IsEmpty());
}

TEST_F(Foreign, MadsOfOtherClassesAreCounted) {
  establish();
  Letter letter = rig.last(CmAttribute::kRtu);
  for (const uint8_t other : std::initializer_list<uint8_t>{0x00, 0x03, 0x04, 0x81}) {
    letter.mad.header.management_class = other;
    rig.inject(letter);
  }
  EXPECT_EQ(host_b.mux.unknown(), 4u);
}

// Random bytes, with ids that are valid more often than random ones would be.
TEST_F(Foreign, NoiseHarmsNobody) {
  establish();
  server.answer = nullptr;
  Side& passive = server.last();
  const Letter from_peer = rig.last(CmAttribute::kRtu);
  std::mt19937 random(4711);
  for (int i = 0; i < 100'000; ++i) {
    Letter letter = from_peer;
    auto* bytes = reinterpret_cast<uint8_t*>(&letter.mad);
    for (size_t at = sizeof(wire::MadHeader); at < sizeof letter.mad; ++at)
      bytes[at] = static_cast<uint8_t>(random());
    letter.mad.header.attribute_id = static_cast<uint16_t>(0x10 + random() % 11);
    letter.source = gid("10.0.0.3");
    if (random() % 2 == 0) letter.mad.as<wire::CmRtu>().remote_id = passive.connection.local_id();
    if (random() % 2 == 0) letter.mad.as<wire::CmReq>().service_id = kService;
    host_b.mux.receive(letter.packet());
    rig.letters.clear();
  }
  EXPECT_EQ(passive.state(), State::kEstablished);
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_THAT(passive.events, SizeIs(1));
}

}  // namespace
}  // namespace vrdma::qp1mux
