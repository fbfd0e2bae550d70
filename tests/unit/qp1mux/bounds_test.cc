// What other hosts may use of a vdevice: answers that nobody asked for, room, and time.
#include <tuple>

#include "qp1mux/exchange.h"
#include "tests/unit/qp1mux/foreign.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// A REQ in the name of a host that knows nothing of it brings that host three MADs at most.
TEST_F(Foreign, AnswersToSilenceAreFew) {
  for (const uint8_t response : std::initializer_list<uint8_t>{8, 17, 19, 31}) {  // codes
    const Letter letter = letter_of_silent(response);
    rig.letters.clear();
    rig.inject(letter);
    EXPECT_EQ(rig.sent(CmAttribute::kRep), 1u);
    rig.inject(letter);  // it asks again
    EXPECT_EQ(rig.sent(CmAttribute::kRep), 2u);
    const Side& side = server.last();
    if (response >= 19) {
      rig.run(response == 19 ? 2 * time_of(19) : kMostOfUnproven - milliseconds(1));
      EXPECT_EQ(side.state(), State::kRepSent) << "it may still confirm";
    }
    rig.run(kMostOfUnproven);
    EXPECT_TRUE(side.saw(EventKind::kRepError)) << int{response};
    rig.run(kMinute);
    EXPECT_THAT(states(host_b.mux), IsEmpty());
    EXPECT_EQ(rig.sent(CmAttribute::kRep), 2u + kMostUnaskedOfUnproven);
    EXPECT_EQ(rig.letters.size(), 2u + kMostUnaskedOfUnproven);
  }
}

// A host that comes too late, to the first contact, learns that it did.
TEST_F(Foreign, AnUnprovenHostIsRefusedWhenItConfirmsTooLate) {
  rig.lose(CmAttribute::kRtu, 100);
  agree();
  Req asked = req();
  asked.local_cm_timeout = 17;
  ask(client, asked);
  rig.run(2 * (time_of(17) + time_of(asked.ack_timeout)));
  EXPECT_TRUE(server.last().saw(EventKind::kRepError));
  EXPECT_EQ(rig.sent(CmAttribute::kRej), 0u);
  EXPECT_EQ(client.state(), State::kEstablished);
  rig.inject(rig.last(CmAttribute::kRtu));
  rig.run(milliseconds(1));
  EXPECT_EQ(client.reason, RejectReason::kTimeout);
}

// One lost message of each kind does not end the first contact.
TEST_F(Foreign, AFirstContactSurvivesLoss) {
  for (const auto lost : {CmAttribute::kReq, CmAttribute::kRep, CmAttribute::kRtu}) {
    rig.lose(lost, 1);
    agree();
    Side side;
    confirm(side);
    ask(side, req());
    rig.run(std::chrono::seconds(1));
    EXPECT_EQ(side.state(), State::kEstablished);
    EXPECT_EQ(server.last().state(), State::kEstablished);
    server.sides.clear();
    side.connection.reset();
    rig.run(kMinute + ProvenHosts::kLast);
  }
}

// Who accepts holds a queue pair for each request until the RTU. A host that only asks gets a share
// of them; neighbours, and hosts that have been here, get the rest.
TEST_F(Foreign, ManyRequestsOfAnUnprovenHostLeaveRoom) {
  establish();  // a's host is proven
  Limits limits;
  limits.unproven = 4;
  b.set_limits(limits);
  Letter letter = letter_of_silent(20);
  server.sides.clear();
  rig.fate = [](const Letter&) { return std::vector<base::Duration>{}; };
  for (uint32_t i = 0; i < 100; ++i) {
    auto& message = letter.mad.as<wire::CmReq>();
    message.local_id = 0x7000 + i;
    message.qpn = 0x7000 + i;
    letter.mad.header.transaction_id = 0x7000 + i;
    rig.inject(letter);
  }
  EXPECT_THAT(server.sides, SizeIs(4));
  EXPECT_EQ(b.counters().overloaded, 96u);
  rig.fate = [](const Letter&) { return std::vector<base::Duration>{{}}; };
  Endpoint c = attach(host_b, setup("c", 0xc), gid("10.0.0.3"));
  Side neighbour, known;
  for (auto& [side, from, at] :
       {std::tuple<Side&, Endpoint&, verbs::Gid>{neighbour, c, gid("10.0.0.3")},
        std::tuple<Side&, Endpoint&, verbs::Gid>{known, a, gid_a}}) {
    confirm(side);
    Req asked = req();
    asked.path.local = at;
    side.connection = from.connection(&side);
    ASSERT_TRUE(side.connection.send_req(asked));
    rig.run(milliseconds(1));
    EXPECT_EQ(side.state(), State::kEstablished);
  }
  rig.run(kMinute);  // the silent ones end
  rig.inject(letter);
  EXPECT_EQ(server.last().state(), State::kRepSent);
}

// A host that has named an id of this vdevice gets what it needs when its network is bad.
TEST_F(Foreign, AnswersToAProvenHostAreMore) {
  establish();
  const Letter letter = letter_of_silent(20, "10.0.0.1");
  rig.fate = [](const Letter&) { return std::vector<base::Duration>{}; };
  rig.inject(letter);
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 1u);
  rig.inject(letter);  // it asks again
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 2u);
  rig.run(kMostOfStranger);
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 2u + kMostUnasked);
  EXPECT_EQ(rig.sent(CmAttribute::kRej), 1u);
  EXPECT_TRUE(server.last().saw(EventKind::kRepError));
  EXPECT_EQ(rig.letters.size(), 3u + kMostUnasked);

  rig.run(kMinute + ProvenHosts::kLast);
  rig.letters.clear();
  rig.inject(letter);
  rig.run(kMinute);
  EXPECT_EQ(rig.letters.size(), 1u + kMostUnaskedOfUnproven)
      << "the proof of a host does not expire";
}

TEST(ProvenHostsTest, AreForgottenInTheOrderOfTheirProofs) {
  ProvenHosts hosts;
  base::TimePoint time{std::chrono::hours(1)};
  const auto host = [](size_t number) {
    verbs::Gid address = gid("10.0.0.0");
    address.bytes[14] = static_cast<uint8_t>(number >> 8);
    address.bytes[15] = static_cast<uint8_t>(number);
    return address;
  };
  for (size_t i = 0; i < ProvenHosts::kMost; ++i) hosts.add(host(i), time);
  EXPECT_TRUE(hosts.has(host(0), time));
  hosts.add(host(0), time);
  hosts.add(host(ProvenHosts::kMost), time);
  EXPECT_TRUE(hosts.has(host(0), time));
  EXPECT_FALSE(hosts.has(host(1), time));
  EXPECT_TRUE(hosts.has(host(2), time));
  hosts.add(host(1), time);
  EXPECT_FALSE(hosts.has(host(2), time));
  time += ProvenHosts::kLast;
  hosts.add(host(3), time);
  EXPECT_TRUE(hosts.has(host(3), time));
  EXPECT_FALSE(hosts.has(host(4), time));
  hosts.add(gid("fd00::1"), time);
  EXPECT_TRUE(hosts.has(gid("fd00::2"), time));
  EXPECT_FALSE(hosts.has(gid("fd00:1::1"), time));
}

// Another host neither fills the backlog for others nor uses up their rate.
TEST_F(Foreign, EachHostIsCountedByItself) {
  b.set_limits({.pending = 12, .requests_per_second = 10, .burst = 9});
  const Letter pattern = letter_of_req();
  uint32_t asked = 0;
  const auto ask_from = [&](const std::string& address) {
    Letter letter = pattern;
    letter.source = gid(address);
    auto& message = letter.mad.as<wire::CmReq>();
    message.primary.local_gid = letter.source;
    message.local_id = message.local_id + ++asked;
    message.qpn = message.qpn + asked;
    letter.mad.header.transaction_id = letter.mad.header.transaction_id + asked;
    const size_t before = server.sides.size();
    rig.inject(letter);
    return server.sides.size() > before;
  };
  listener.set_backlog(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask_from("10.0.0.66"));
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ask_from("10.0.0.66"));
  EXPECT_TRUE(ask_from("fd00::1"));
  EXPECT_TRUE(ask_from("fd00::2"));
  EXPECT_TRUE(ask_from("fd00::3"));
  EXPECT_FALSE(ask_from("fd00::4"));  // of the same network of 64 bits
  // All other hosts together have half of the room for pending requests.
  EXPECT_FALSE(ask_from("10.0.0.67"));
  server.sides.clear();
  rig.run(kMinute);
  EXPECT_TRUE(ask_from("10.0.0.67"));
}

// A request that its sender takes back at once is forgotten soon, whatever time it named.
TEST_F(Foreign, WhatNeverStoodIsSoonForgotten) {
  Letter letter = letter_of_silent(20);
  server.answer = nullptr;
  letter.mad.as<wire::CmReq>().primary.set_ack_timeout(31);
  const Letter req = letter;
  rig.inject(letter);
  auto& rej = wire::begin<wire::CmRej>(letter.mad, 0x5eed);
  rej.local_id = req.mad.as<wire::CmReq>().local_id;
  rej.reason = static_cast<uint16_t>(RejectReason::kTimeout);
  rig.inject(letter);
  EXPECT_EQ(server.last().state(), State::kTimewait);
  EXPECT_EQ(b.use().connections, 1u);
  rig.run(milliseconds(600));
  EXPECT_EQ(b.use().connections, 0u);
  rig.inject(req);  // and what the vdevice refuses
  ASSERT_THAT(server.sides, SizeIs(2));
  server.last().connection.reset();
  EXPECT_EQ(last_rej(), RejectReason::kConsumer);
  EXPECT_EQ(b.use().connections, 1u);
  rig.run(milliseconds(600));
  EXPECT_EQ(b.use().connections, 0u);
}

// Until then they take half of the connections at most; neighbours and those who are connected have
// the rest.
TEST_F(Foreign, WhatNeverStoodLeavesRoom) {
  b.set_limits({.connections = 8});
  const Letter pattern = letter_of_silent(20);
  server.answer = nullptr;
  for (uint32_t i = 0; i < 20; ++i) {
    Letter letter = pattern;
    auto& message = letter.mad.as<wire::CmReq>();
    message.local_id = message.qpn = 0x7000 + i;
    letter.mad.header.transaction_id = 0x7000 + i;
    rig.inject(letter);
    auto& rej = wire::begin<wire::CmRej>(letter.mad, 0x5eed);
    rej.local_id = 0x7000 + i;
    rig.inject(letter);
  }
  EXPECT_EQ(b.use().connections, 4u);
  EXPECT_EQ(b.counters().overloaded, 16u);
  EXPECT_EQ(b.counters().crowded, 0u);
  Endpoint c = attach(host_b, setup("c", 0xc), gid("10.0.0.3"));
  agree();
  Req asked = req();
  asked.path.local = gid("10.0.0.3");
  client.connection = c.connection(&client);
  ASSERT_TRUE(client.connection.send_req(asked));
  rig.run(milliseconds(1));
  EXPECT_EQ(client.state(), State::kEstablished);
  rig.run(milliseconds(600));
  Side other;
  confirm(other);
  ask(other, req());
  rig.run(milliseconds(1));
  EXPECT_EQ(other.state(), State::kEstablished);
}

// Anybody on the network may send in its name.
TEST_F(Foreign, AnotherIslandOfThisHostIsBoundAsAnotherHost) {
  Endpoint c = attach(host_b, setup("c", 0xc), gid("10.0.0.3"));
  c.set_island(7);
  b.set_limits({.unproven = 4});
  Letter letter = letter_of_silent(20, "10.0.0.3");
  letter.from_network = true;
  server.sides.clear();
  rig.fate = [](const Letter&) { return std::vector<base::Duration>{}; };
  const auto ask_as = [&](uint32_t number) {
    auto& message = letter.mad.as<wire::CmReq>();
    message.local_id = message.qpn = number;
    letter.mad.header.transaction_id = number;
    rig.inject(letter);
  };
  for (uint32_t i = 0; i < 10; ++i) ask_as(0x7000 + i);
  EXPECT_THAT(server.sides, SizeIs(4));
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 4u);
  rig.run(kMostOfUnproven);
  for (const auto& side : server.sides) EXPECT_TRUE(side->saw(EventKind::kRepError));
  EXPECT_EQ(rig.sent(CmAttribute::kRep), 4u + 4 * kMostUnaskedOfUnproven);
  rig.run(kMinute);
  // They wait in its name, and not in that of the tenant of b.
  server.answer = nullptr;
  listener.set_backlog(1);
  ask_as(0x8000);
  ask_as(0x8001);
  EXPECT_THAT(server.sides, SizeIs(5));
  letter.source = letter.mad.as<wire::CmReq>().primary.local_gid = gid("10.0.0.99");
  ask_as(0x8002);
  EXPECT_THAT(server.sides, SizeIs(6));
}

}  // namespace
}  // namespace vrdma::qp1mux
