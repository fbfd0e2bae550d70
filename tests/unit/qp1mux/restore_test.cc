// Connections and ids that continue in another Mux after the process of the first has died, in
// every state, with messages in flight lost.
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

using testing::Contains;
using testing::IsEmpty;

// Vdevices a and b on one host whose process may die.
struct Mortal : testing::Test {
  Rig rig;
  verbs::Gid gid_a = gid("10.0.0.1"), gid_b = gid("10.0.0.2");
  Host* host = &rig.host();
  Endpoint a = TwoHosts::attach(*host, setup("a", 0xa), gid_a);
  Endpoint b = TwoHosts::attach(*host, setup("b", 0xb), gid_b);
  Server server;
  Listener listener = std::move(b.listen(kService, std::nullopt, 8, &server).value());
  Side client;

  void ask() {
    Req req;
    req.path.local = gid_a;
    req.path.remote = gid_b;
    req.service_id = kService;
    req.qpn = 0x11;
    client.connection = a.connection(&client);
    ASSERT_TRUE(client.connection.send_req(req));
  }
  void accept() {
    Rep rep;
    rep.qpn = 0x22;
    ASSERT_TRUE(server.last().connection.send_rep(rep));
  }
  void establish() {
    ask();
    run();
    accept();
    run();
    ASSERT_TRUE(client.connection.send_rtu());
    run();
  }

  // Dies, loses all MADs in flight, and is replaced.
  void die(bool with_client = true, bool with_server = true) {
    const ConnectionRecord of_client = client.connection.record();
    const ConnectionRecord of_server =
        server.sides.empty() ? ConnectionRecord() : server.last().connection.record();
    rig.lose_all();
    client.connection = {};
    for (const auto& side : server.sides) side->connection = {};
    listener = {};
    a = {};
    b = {};
    rig.lose_all();
    host = &rig.host();
    a = TwoHosts::attach(*host, setup("a", 0xa), gid_a);
    b = TwoHosts::attach(*host, setup("b", 0xb), gid_b);
    listener = std::move(b.listen(kService, std::nullopt, 8, &server).value());
    if (with_client && of_client.state != State::kClosed)
      client.connection = std::move(a.restore(of_client, &client).value());
    if (with_server && of_server.state != State::kClosed)
      server.last().connection = std::move(b.restore(of_server, &server.last()).value());
    host->mux.drop_half_open();
  }
  void run(base::Duration span = std::chrono::milliseconds(50)) { rig.run(span); }
};

// The steps of the two sides; the process may die before and after each of them.
TEST_F(Mortal, GoOnInEveryState) {
  const std::vector<std::function<void()>> steps = {
      [&] { ask(); },
      [&] { accept(); },
      [&] { ASSERT_TRUE(client.connection.send_rtu()); },
      [&] { ASSERT_TRUE(client.connection.send_dreq()); },
      [&] { ASSERT_TRUE(server.last().connection.send_drep()); },
  };
  for (size_t dies_at = 0; dies_at < 2 * steps.size(); ++dies_at) {
    client.events.clear();
    server.sides.clear();
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(steps[i]()) << dies_at << " " << i;
      if (dies_at == 2 * i) die();  // the messages of this step are lost
      run(std::chrono::seconds(30));
      // An RTU is sent again only when its REP is.
      if (dies_at == 2 * i + 1) die();
    }
    run(std::chrono::minutes(3));
    ASSERT_EQ(client.state(), State::kClosed) << dies_at;
    ASSERT_EQ(server.last().state(), State::kClosed) << dies_at;
    ASSERT_EQ(client.events, (std::vector{EventKind::kRepReceived, EventKind::kDrepReceived,
                                          EventKind::kTimewaitExit}))
        << dies_at;
    ASSERT_EQ(server.sides.size(), 1u) << dies_at;
    ASSERT_THAT(server.last().events, Contains(EventKind::kDreqReceived)) << dies_at;
    ASSERT_THAT(host->mux.connections(), IsEmpty()) << dies_at;
    EXPECT_EQ(a.use().connections + b.use().connections + a.use().pending + b.use().pending, 0u);
  }
}

TEST_F(Mortal, KeepTheirIdsApart) {
  ask();
  run();
  accept();
  run();
  const ConnectionRecord record = client.connection.record();
  EXPECT_EQ(a.restore(record, nullptr).error().code(), EEXIST);
  EXPECT_EQ(record.remote_id, server.last().connection.local_id());
}

TEST_F(Mortal, TellThatThePeerDidNotSurvive) {
  establish();
  die(true, false);
  EXPECT_EQ(client.state(), State::kDreqReceived);
  EXPECT_EQ(client.events.back(), EventKind::kDreqReceived);
  ASSERT_TRUE(client.connection.send_drep());
  run(std::chrono::minutes(1));
  EXPECT_EQ(client.state(), State::kClosed);
}

TEST_F(Mortal, TellSoWhoseAddressHasGoneMeanwhile) {
  establish();
  gid_a = gid("10.0.0.9");
  die(true, false);
  EXPECT_EQ(client.state(), State::kDreqReceived);
}

TEST_F(Mortal, HearAtAnAddressThatComesBack) {
  const verbs::Gid absent = gid("10.0.0.8");
  EXPECT_EQ(b.listen(kService, absent, 8, &server).error().code(), EADDRNOTAVAIL);
  listener = {};
  listener = std::move(b.listen(kService, absent, 8, &server, Endpoint::Absent::kMay).value());
  gid_b = absent;
  ask();
  run();
  EXPECT_EQ(server.sides.size(), 0u);
  client.connection = {};
  ASSERT_TRUE(b.set_gids({absent}));
  ask();
  run();
  EXPECT_EQ(server.sides.size(), 1u);
}

TEST_F(Mortal, TellWhoHasAnsweredThatTheAskerDidNotSurvive) {
  ask();
  run();
  die(false, true);
  accept();
  run();
  EXPECT_EQ(server.last().events.back(), EventKind::kRejReceived);
  EXPECT_EQ(server.last().reason, RejectReason::kInvalidCommId);
}

// Only this process has died: a peer on another host goes on, whatever the addresses here.
TEST_F(Mortal, KeepWhatTheyHaveWithOtherHosts) {
  const verbs::Gid gid_c = gid("10.0.0.3");
  Host& other = rig.host();
  Endpoint c = TwoHosts::attach(other, setup("c", 0xc), gid_c);
  Server far_server;
  const Listener at_c = std::move(c.listen(kService, std::nullopt, 8, &far_server).value());
  const verbs::Gid near = std::exchange(gid_b, gid_c);
  ask();
  run();
  Rep rep;
  rep.qpn = 0x33;
  ASSERT_TRUE(far_server.last().connection.send_rep(rep));
  run();
  ASSERT_TRUE(client.connection.send_rtu());
  run();
  gid_b = near;
  EXPECT_TRUE(client.connection.record().remote);
  EXPECT_TRUE(far_server.last().connection.record().remote);

  const size_t so_far = rig.sent(CmAttribute::kDreq);
  die();
  const size_t at_death = rig.sent(CmAttribute::kDreq);  // lost, see die()
  EXPECT_GE(at_death, so_far);
  run(std::chrono::minutes(1));
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_EQ(far_server.last().state(), State::kEstablished);
  EXPECT_EQ(rig.sent(CmAttribute::kDreq), at_death);
  ASSERT_TRUE(client.connection.send_dreq());
  run();
  EXPECT_EQ(far_server.last().events.back(), EventKind::kDreqReceived);
  ASSERT_TRUE(far_server.last().connection.send_drep());
  run(std::chrono::minutes(1));
  EXPECT_EQ(client.state(), State::kClosed);
}

TEST_F(Mortal, KeepWhatOtherHostsHaveWithThem) {
  Host& other = rig.host();
  const verbs::Gid gid_c = gid("10.0.0.3");
  Endpoint c = TwoHosts::attach(other, setup("c", 0xc), gid_c);
  Side far_client;
  far_client.connection = c.connection(&far_client);
  Req req;
  req.path.local = gid_c;
  req.path.remote = gid_b;
  req.service_id = kService;
  req.qpn = 0x33;
  ASSERT_TRUE(far_client.connection.send_req(req));
  run();
  accept();
  run();
  ASSERT_TRUE(far_client.connection.send_rtu());
  run();
  die();
  run(std::chrono::minutes(1));
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_EQ(far_client.state(), State::kEstablished);
}

}  // namespace
}  // namespace vrdma::qp1mux
