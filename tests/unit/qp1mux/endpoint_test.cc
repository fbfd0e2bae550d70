// What a vdevice owns and may do: stamping, refusals, limits, listeners, raw access.
#include "qp1mux/endpoint.h"

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Endpoints : TwoHosts {
  int refusal(const Req& with) {
    Side side;
    side.connection = a.connection(&side);
    const auto result = side.connection.send_req(with);
    return result ? 0 : result.error().code();
  }
};

TEST_F(Endpoints, SendOnlyWhatTheyOwn) {
  Req forged = req();
  forged.path.local = gid("10.0.0.9");
  EXPECT_EQ(refusal(forged), EADDRNOTAVAIL);
  forged = req();
  forged.path.local = gid_b;
  EXPECT_EQ(refusal(forged), EADDRNOTAVAIL);
  forged = req();
  forged.qpn = kForeignQpn;
  EXPECT_EQ(refusal(forged), EPERM);
  const wire::IpHeader lie = wire::encode({gid("10.0.0.9"), gid_b, 1});
  forged = req();
  forged.private_data = {reinterpret_cast<const uint8_t*>(&lie), sizeof lie};
  EXPECT_EQ(refusal(forged), EADDRNOTAVAIL);
  EXPECT_EQ(a.counters().refused, 4u);
  EXPECT_THAT(rig.letters, IsEmpty());

  forged = req();
  forged.ca_guid = 0xdead;  // the given value is ignored
  ask(client, forged);
  EXPECT_EQ(rig.letters[0].mad.as<wire::CmReq>().ca_guid, 0xau);
  rig.run();
  Rep bad = rep();
  bad.qpn = kForeignQpn;
  EXPECT_EQ(server.last().connection.send_rep(bad).error().code(), EPERM);
  EXPECT_EQ(b.counters().refused, 1u);
}

TEST_F(Endpoints, OfPrivateServicesMayCarryAnything) {
  const wire::IpHeader no_lie = wire::encode({gid("10.0.0.9"), gid_b, 1});
  Req asked = req();
  asked.service_id = 0x1000'0000'0000'0001;
  asked.private_data = {reinterpret_cast<const uint8_t*>(&no_lie), sizeof no_lie};
  EXPECT_EQ(refusal(asked), 0);
}

TEST_F(Endpoints, HaveGidsThatNoOtherOfTheFabricHas) {
  Endpoint other = std::move(host_a.mux.attach(setup("c", 0xc)).value());
  EXPECT_EQ(other.set_gids({gid_a}).error().code(), EADDRINUSE);
  Endpoint blue = std::move(host_a.mux.attach(setup("d", 0xd, "blue")).value());
  EXPECT_TRUE(blue.set_gids({gid_a}));
  EXPECT_TRUE(host_a.mux.are_near("blue", gid_a, gid_a));
  EXPECT_TRUE(a.set_gids({}));
  EXPECT_FALSE(host_a.mux.are_near("red", gid_a, gid_a));
  EXPECT_TRUE(other.set_gids({gid_a}));
  other.reset();
  EXPECT_FALSE(host_a.mux.are_near("red", gid_a, gid_a));
  EXPECT_TRUE(host_a.mux.are_near("blue", gid_a, gid_a));
}

TEST_F(Endpoints, NeedSomebodyWhoKnowsTheirQueuePairs) {
  EndpointSetup without = setup("c", 0xc);
  without.owns_qpn = nullptr;
  EXPECT_EQ(host_a.mux.attach(std::move(without)).error().code(), EINVAL);
}

TEST_F(Endpoints, OfTwoFabricsDoNotMeet) {
  Endpoint blue = attach(host_b, setup("blue", 0xc, "blue"), gid_b);
  Server blue_server;
  const Listener blue_listener =
      std::move(blue.listen(kService, std::nullopt, 8, &blue_server).value());
  ask();
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(1));
  EXPECT_THAT(blue_server.sides, IsEmpty());
  Endpoint alone = attach(host_a, setup("alone", 0xd, "green"), gid_a);
  Side lost;
  lost.connection = alone.connection(&lost);
  ASSERT_TRUE(lost.connection.send_req(req()));
  rig.run(milliseconds(100));
  EXPECT_THAT(server.sides, SizeIs(1));
}

TEST_F(Endpoints, FallSilentWhenTheirAddressGoes) {
  establish();
  ASSERT_TRUE(a.set_gids({gid("10.0.0.5")}));
  rig.letters.clear();
  ASSERT_TRUE(client.connection.send_dreq());
  EXPECT_THAT(rig.letters, IsEmpty());
  EXPECT_EQ(a.counters().refused, 1u);
  EXPECT_EQ(refusal(req()), EADDRNOTAVAIL);
}

TEST_F(Endpoints, ThatGoEndWhatStands) {
  establish();
  Side asking;
  server.answer = nullptr;
  ask(asking, req());
  rig.run();
  Side idle;
  idle.connection = a.connection(&idle);
  Side& passive = *server.sides.front();
  a.reset();
  EXPECT_EQ(client.connection.send_dreq().error().code(), ENODEV);
  EXPECT_EQ(asking.connection.send_rtu().error().code(), ENODEV);
  EXPECT_EQ(idle.connection.send_req(req()).error().code(), ENODEV);
  rig.run();
  EXPECT_TRUE(passive.saw(EventKind::kDreqReceived));
  EXPECT_TRUE(server.last().saw(EventKind::kRejReceived));
  EXPECT_THAT(states(host_a.mux), IsEmpty());
}

TEST_F(Endpoints, ThatGoTakeTheirListenersAlong) {
  b.reset();
  EXPECT_THAT(host_b.mux.listeners(), IsEmpty());
  listener.set_backlog(3);
  listener.reset();
  EXPECT_FALSE(listener.active());
}

TEST_F(Endpoints, ListenAtAnAddressBeforeAtAll) {
  ASSERT_TRUE(b.set_gids({gid_b, gid("10.0.1.2")}));
  Server special;
  Listener at_one = std::move(b.listen(kService, gid("10.0.1.2"), 8, &special).value());
  EXPECT_EQ(b.listen(kService, std::nullopt, 8, &special).error().code(), EADDRINUSE);
  EXPECT_EQ(b.listen(kService, gid("10.0.1.2"), 8, &special).error().code(), EADDRINUSE);
  EXPECT_EQ(b.listen(kService, gid_a, 8, &special).error().code(), EADDRNOTAVAIL);
  EXPECT_TRUE(b.listen(kService, gid_b, 8, &special));  // destroyed at once
  Req asked = req();
  asked.path.remote = gid("10.0.1.2");
  ask(client, asked);
  Side second;
  ask(second, req());
  rig.run();
  EXPECT_THAT(special.sides, SizeIs(1));
  EXPECT_THAT(server.sides, SizeIs(1));
  at_one.reset();
  Side third;
  asked.qpn = next_qpn++;
  ask(third, asked);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(2));
}

TEST_F(Endpoints, AFullBacklogDropsAndTheRepeatedReqComesIn) {
  listener.set_backlog(1);
  Side second;
  ask();
  ask(second, req());
  rig.run();
  ASSERT_THAT(server.sides, SizeIs(1));
  EXPECT_EQ(b.counters().overloaded, 1u);
  ASSERT_THAT(host_b.mux.listeners(), SizeIs(1));
  EXPECT_EQ(host_b.mux.listeners()[0].waiting, 1u);
  EXPECT_EQ(host_b.mux.listeners()[0].backlog, 1u);
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run(milliseconds(200));
  EXPECT_THAT(server.sides, SizeIs(2));
}

TEST_F(Endpoints, OfAListenerThatStoppedTheConnectionsStay) {
  ask();
  rig.run();
  listener.reset();
  agree();
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run();
  EXPECT_EQ(client.state(), State::kEstablished);
  Side late;
  ask(late, req());
  rig.run();
  EXPECT_EQ(late.reason, RejectReason::kInvalidServiceId);
}

TEST_F(Endpoints, BoundWhatIsPendingOnBothSides) {
  a.set_limits({.pending = 2});
  Side first, second;
  ask(first, req());
  ask(second, req());
  EXPECT_EQ(refusal(req()), EAGAIN);
  EXPECT_EQ(a.counters().limited, 1u);
  rig.run();
  server.sides[0]->connection.reset();
  rig.run();
  EXPECT_EQ(refusal(req()), 0);
  rig.run();
  a.set_limits({});
  b.set_limits({.pending = 1});
  const auto before = server.sides.size();
  Side third;
  ask(third, req());
  rig.run();
  EXPECT_EQ(server.sides.size(), before);
  EXPECT_GT(b.counters().overloaded, 0u);
}

TEST_F(Endpoints, BoundConnectionsTimewaitIncluded) {
  a.set_limits({.connections = 1});
  establish();
  EXPECT_EQ(refusal(req()), EAGAIN);
  client.connection.reset();
  rig.run();
  server.last().connection.reset();
  rig.run();
  EXPECT_EQ(refusal(req()), EAGAIN);  // TIMEWAIT
  rig.run(std::chrono::seconds(1));
  EXPECT_EQ(refusal(req()), 0);
}

TEST_F(Endpoints, BoundTheRateOfRequests) {
  a.set_limits({.requests_per_second = 10, .burst = 3});
  std::vector<std::unique_ptr<Side>> sides;
  const auto ask_one = [&] {
    auto& side = *sides.emplace_back(std::make_unique<Side>());
    side.connection = a.connection(&side);
    return side.connection.send_req(req()).has_value();
  };
  EXPECT_TRUE(ask_one() && ask_one() && ask_one());
  EXPECT_FALSE(ask_one());
  rig.run(milliseconds(100));
  EXPECT_TRUE(ask_one());
  EXPECT_FALSE(ask_one());
  rig.run(std::chrono::hours(2));
  EXPECT_TRUE(ask_one() && ask_one() && ask_one());
  EXPECT_FALSE(ask_one());
  EXPECT_EQ(a.counters().limited, 3u);
}

TEST_F(Endpoints, AFloodReachesNobodyElse) {
  b.set_limits({.requests_per_second = 100, .burst = 100});
  Endpoint c = attach(host_b, setup("c", 0xc), gid("10.0.0.3"));
  Server quiet;
  const Listener at_c = std::move(c.listen(kService, std::nullopt, 8, &quiet).value());
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < 1000; ++i) {
    auto& side = *sides.emplace_back(std::make_unique<Side>());
    ask(side, req());
  }
  rig.run();
  EXPECT_EQ(b.counters().overloaded, 1000u - 8);
  EXPECT_THAT(server.sides, SizeIs(8));  // its backlog
  Req asked = req();
  asked.path.remote = gid("10.0.0.3");
  ask(client, asked);
  rig.run();
  EXPECT_THAT(quiet.sides, SizeIs(1));
}

struct Raw : RawHandler {
  std::vector<Letter> letters;
  void on_mad(const Packet& packet) override { letters.emplace_back(packet); }
};

TEST_F(Endpoints, RawAccessNeedsTheCapability) {
  Raw raw;
  EXPECT_EQ(a.open_raw(&raw).error().code(), EPERM);
  EndpointSetup may = setup("c", 0xc);
  may.raw = true;
  Endpoint c = attach(host_a, std::move(may), gid("10.0.0.3"));
  RawPort port = std::move(c.open_raw(&raw).value());
  EXPECT_EQ(c.open_raw(&raw).error().code(), EBUSY);
  port.reset();
  EXPECT_TRUE(c.open_raw(&raw));
}

TEST_F(Endpoints, RawSendsOnlyWhatItOwns) {
  Raw raw;
  EndpointSetup may = setup("c", 0xc);
  may.raw = true;
  const auto gid_c = gid("10.0.0.3");
  Endpoint c = attach(host_a, std::move(may), gid_c);
  RawPort port = std::move(c.open_raw(&raw).value());
  const auto code = [](const base::Result<void>& result) {
    return result ? 0 : result.error().code();
  };
  Path path;
  path.local = gid_c;
  path.remote = gid_b;
  wire::Mad mad;
  auto& message = wire::begin<wire::CmReq>(mad, 1);
  message.ca_guid = 0xc;
  message.qpn = 1;
  message.local_id = 0x99;
  message.set_mtu(3);
  message.service_id = kService;
  message.primary.local_gid = gid_c;
  message.primary.remote_gid = gid_b;
  EXPECT_EQ(code(port.send(path, mad)), 0);
  rig.run();
  ASSERT_THAT(server.sides, SizeIs(1));
  ASSERT_TRUE(server.last().connection.send_rep(rep()));
  rig.run();
  ASSERT_THAT(raw.letters, SizeIs(1));
  EXPECT_EQ(raw.letters[0].attribute(), CmAttribute::kRep);
  EXPECT_EQ(raw.letters[0].mad.as<wire::CmRep>().remote_id, 0x99u);

  message.ca_guid = 0xa;
  EXPECT_EQ(code(port.send(path, mad)), EPERM);
  message.ca_guid = 0xc;
  message.qpn = kForeignQpn;
  EXPECT_EQ(code(port.send(path, mad)), EPERM);
  message.qpn = 1;
  message.primary.local_gid = gid_a;
  EXPECT_EQ(code(port.send(path, mad)), EADDRNOTAVAIL);
  message.primary.local_gid = gid_c;
  const wire::IpHeader lie = wire::encode({gid_a, gid_b, 1});
  std::memcpy(message.private_data, &lie, sizeof lie);
  EXPECT_EQ(code(port.send(path, mad)), EADDRNOTAVAIL);
  path.local = gid_a;
  EXPECT_EQ(code(port.send(path, mad)), EADDRNOTAVAIL);
  path.local = gid_c;
  auto& answer = wire::begin<wire::CmRep>(mad, 1);
  answer.ca_guid = 0xc;
  answer.qpn = kForeignQpn;
  EXPECT_EQ(code(port.send(path, mad)), EPERM);
  EXPECT_EQ(c.counters().refused, 6u);
  EXPECT_EQ(c.counters().raw_sent, 1u);
  wire::begin<wire::CmRtu>(mad, 1);
  mad.header.management_class = 0x04;
  EXPECT_EQ(code(port.send(path, mad)), 0);
  c.reset();
  EXPECT_EQ(code(port.send(path, mad)), ENODEV);
}

TEST_F(Endpoints, RawGetsWhatIsForNoConnectionAndNoListener) {
  Raw raw;
  EndpointSetup may = setup("c", 0xc);
  may.raw = true;
  Endpoint c = attach(host_b, std::move(may), gid("10.0.0.3"));
  const RawPort port = std::move(c.open_raw(&raw).value());
  Server own;
  const Listener at_c = std::move(c.listen(kService, std::nullopt, 8, &own).value());
  Req asked = req();
  asked.path.remote = gid("10.0.0.3");
  ask(client, asked);
  rig.run();
  EXPECT_THAT(own.sides, SizeIs(1));
  EXPECT_THAT(raw.letters, IsEmpty());
  Side second;
  asked.service_id = kService + 1;
  asked.qpn = next_qpn++;
  ask(second, asked);
  rig.run();
  ASSERT_THAT(raw.letters, SizeIs(1));
  EXPECT_EQ(raw.letters[0].source, gid_a);
  EXPECT_THAT(second.events, IsEmpty());
  EXPECT_EQ(c.counters().raw_received, 1u);
}

}  // namespace
}  // namespace vrdma::qp1mux
