// Vdevices of several tenants on one host: a request is charged to its sender alone.
#include "qp1mux/early.h"
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr milliseconds kPatience(30);

// red and green send requests, blue listens.
struct Neighbours : testing::Test {
  Rig rig;
  Host& host = rig.host(kPatience);
  verbs::Gid red_gid = gid("10.0.0.1"), blue_gid = gid("10.0.0.2"), green_gid = gid("10.0.0.3");
  Endpoint red = TwoHosts::attach(host, setup("red0", 0xa), red_gid);
  Endpoint blue = TwoHosts::attach(host, setup("blue0", 0xb), blue_gid);
  Endpoint green = TwoHosts::attach(host, setup("green0", 0xc), green_gid);
  Server server;
  Listener listener;
  std::vector<std::unique_ptr<Side>> sides;
  uint32_t next_qpn = 0x100;

  void listen(uint32_t backlog = 8) {
    listener = std::move(blue.listen(kService, std::nullopt, backlog, &server).value());
  }
  Side& ask(Endpoint& from, const verbs::Gid& at, uint64_t service = kService) {
    Side& side = *sides.emplace_back(std::make_unique<Side>());
    Req req;
    req.path.local = at;
    req.path.remote = blue_gid;
    req.service_id = service;
    req.qpn = next_qpn++;
    side.connection = from.connection(&side);
    const auto sent = side.connection.send_req(req);
    EXPECT_TRUE(sent) << (sent ? "" : sent.error().message());
    return side;
  }
};

TEST_F(Neighbours, DoNotSpendTheRateOfWhomTheyAsk) {
  blue.set_limits({.requests_per_second = 10, .burst = 10});
  listen(100);
  for (int i = 0; i < 50; ++i) ask(red, red_gid);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(10)) << "the limit of one tenant";
  ask(green, green_gid);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(11)) << "another tenant has its own";
  EXPECT_EQ(server.last().connection.path().remote, green_gid);
}

TEST_F(Neighbours, DoNotSpendTheConnectionsOfWhomTheyAsk) {
  blue.set_limits({.connections = 2});
  listen(100);
  for (int i = 0; i < 5; ++i) ask(red, red_gid);
  rig.run();
  ASSERT_THAT(server.sides, SizeIs(5));
  EXPECT_EQ(blue.use().connections, 0u);
  EXPECT_EQ(blue.use().pending, 0u);
  EXPECT_EQ(red.use().half_open, 5u);
  Rep rep;
  rep.qpn = 0x900;
  EXPECT_TRUE(server.sides[0]->connection.send_rep(rep));
  EXPECT_EQ(red.use().half_open, 4u);
  EXPECT_EQ(blue.use().connections, 1u) << "only the accepted connection";
  EXPECT_TRUE(server.sides[1]->connection.send_rep(rep));
  EXPECT_EQ(server.sides[2]->connection.send_rep(rep).error().code(), EAGAIN);
  EXPECT_EQ(blue.counters().crowded, 1u);
}

TEST_F(Neighbours, PayForWhatWasRefusedUntilItIsForgotten) {
  listen(100);
  ask(red, red_gid);
  rig.run();
  server.sides.clear();
  EXPECT_EQ(red.use().half_open, 1u) << "TIMEWAIT";
  EXPECT_EQ(blue.use().connections, 0u);
  rig.run(kMinute);
  EXPECT_EQ(red.use().half_open, 0u);
}

TEST_F(Neighbours, HaveSoManyRequestsAtOthers) {
  listen(100);
  for (int i = 0; i < 3; ++i) {
    Side& side = ask(red, red_gid);
    rig.run();
    side.connection.reset();  // its state at blue does not end at once
    rig.run();
  }
  EXPECT_EQ(red.use().half_open, 3u);
  rig.run(kMinute);
  red.set_limits({.connections = 2});
  const auto before = server.sides.size();
  Side& first = ask(red, red_gid);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(before + 1));
  first.connection.reset();
  rig.run();
  ask(red, red_gid);
  rig.run();
  EXPECT_EQ(red.use().half_open, 2u);
}

TEST_F(Neighbours, DoNotFillTheBacklogOfOthers) {
  listen(4);
  for (int i = 0; i < 10; ++i) ask(red, red_gid);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(4));
  ask(green, green_gid);
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(5));
  EXPECT_EQ(host.mux.listeners()[0].waiting, 5u);
  server.sides.clear();
  EXPECT_EQ(host.mux.listeners()[0].waiting, 0u);
}

TEST_F(Neighbours, DoNotTakeThePatienceOfOthers) {
  red.set_limits({.early = 10});
  for (int i = 0; i < 50; ++i) ask(red, red_gid);
  rig.run();
  EXPECT_EQ(red.use().early, 10u);
  EXPECT_EQ(red.counters().impatient, 40u);
  const Side& patient = ask(green, green_gid);
  rig.run();
  EXPECT_THAT(patient.events, IsEmpty());
  EXPECT_EQ(green.use().early, 1u);
  listen(100);
  rig.run();
  EXPECT_EQ(red.use().early, 0u);
  EXPECT_EQ(green.use().early, 0u);
  EXPECT_THAT(server.sides, SizeIs(11));
}

// red fills all the room of the host.
TEST_F(Neighbours, WhoHasTheMostMakesRoom) {
  red.set_limits({.early = 1u << 20});
  for (size_t i = 0; i < EarlyRequests::kMost; ++i) ask(red, red_gid);
  rig.run();
  EXPECT_EQ(red.use().early, EarlyRequests::kMost);
  const Side& patient = ask(green, green_gid);
  rig.run();
  EXPECT_THAT(patient.events, IsEmpty());
  EXPECT_EQ(green.use().early, 1u);
  EXPECT_EQ(red.use().early, EarlyRequests::kMost - 1);
  EXPECT_EQ(red.counters().impatient, 1u);
  EXPECT_EQ(sides[0]->reason, RejectReason::kInvalidServiceId) << "the oldest";
  ask(red, red_gid);
  rig.run();
  EXPECT_EQ(red.counters().impatient, 2u) << "a tenant does not evict its own requests";
}

TEST_F(Neighbours, WaitForTheirServiceAlone) {
  ask(red, red_gid, kService + 1);
  Side& right = ask(red, red_gid);
  rig.run();
  listen();
  rig.run();
  EXPECT_THAT(server.sides, SizeIs(1));
  EXPECT_EQ(red.use().early, 1u);
  right.connection.reset();
  blue = {};
  EXPECT_EQ(red.use().early, 0u);
  rig.run(kMinute);
}

}  // namespace
}  // namespace vrdma::qp1mux
