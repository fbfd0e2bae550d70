// Vdevices of one host: the same messages, in memory.
#include "qp1mux/loopback.h"

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

struct Counting final : Wire {
  int sent = 0;
  void send(const Packet&) override { ++sent; }
};

struct Stopped final : Clock {
  base::TimePoint time{};
  [[nodiscard]] base::TimePoint now() const override { return time; }
  void wake_at(base::TimePoint) override {}
};

struct OneHost : testing::Test {
  Counting network;
  Stopped clock;
  int wakes = 0;
  Loopback loopback{[this] { ++wakes; }, &network, 100};
  Mux mux{Config{.random = std::mt19937_64(1)}, clock, loopback};
  Endpoint a = TwoHosts::attach_to(mux, setup("a", 0xa), gid("10.0.0.1"));
  Endpoint b = TwoHosts::attach_to(mux, setup("b", 0xb), gid("10.0.0.2"));
  Server server;
  Listener listener = std::move(b.listen(kService, std::nullopt, 1000, &server).value());

  OneHost() { loopback.set_mux(&mux); }
  Req req(const char* to, uint32_t qpn) {
    Req value;
    value.path.local = gid("10.0.0.1");
    value.path.remote = gid(to);
    value.service_id = kService;
    value.qpn = qpn;
    return value;
  }
};

TEST_F(OneHost, ConnectsItsVdevicesByMads) {
  Side client;
  TwoHosts::confirm(client);
  server.answer = [](Side& side) {
    Rep rep;
    rep.qpn = 2;
    EXPECT_TRUE(side.connection.send_rep(rep));
  };
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req("10.0.0.2", 1)));
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(server.sides.empty());  // never from inside the command
  for (int i = 0; i < 3; ++i) loopback.deliver();
  EXPECT_EQ(wakes, 3);
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_EQ(server.last().state(), State::kEstablished);
  EXPECT_EQ(network.sent, 0);
  EXPECT_NE(client.connection.local_id(), server.last().connection.local_id());
}

TEST_F(OneHost, ConnectsAVdeviceWithItself) {
  Server own;
  const Listener at_a = std::move(a.listen(kService, std::nullopt, 1, &own).value());
  own.answer = [](Side& side) {
    Rep rep;
    rep.qpn = 2;
    EXPECT_TRUE(side.connection.send_rep(rep));
  };
  Side client;
  TwoHosts::confirm(client);
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req("10.0.0.1", 1)));
  for (int i = 0; i < 3; ++i) loopback.deliver();
  EXPECT_EQ(client.state(), State::kEstablished);
  EXPECT_EQ(own.last().state(), State::kEstablished);
  client.connection.reset();
  loopback.deliver();
  EXPECT_EQ(own.last().state(), State::kDreqReceived);
}

TEST_F(OneHost, GivesTheRestToTheNetwork) {
  Side client;
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_req(req("10.0.0.3", 1)));
  EXPECT_EQ(network.sent, 1);
  EXPECT_EQ(wakes, 0);
}

TEST_F(OneHost, LosesWhatIsTooMuch) {
  std::vector<std::unique_ptr<Side>> sides;
  for (uint32_t i = 1; i <= 150; ++i) {
    auto& side = *sides.emplace_back(std::make_unique<Side>());
    side.connection = a.connection(&side);
    ASSERT_TRUE(side.connection.send_req(req("10.0.0.2", i)));
    if (i == 30) loopback.deliver();  // so that the ring has wrapped when it grows
  }
  EXPECT_EQ(loopback.lost(), 20u);
  loopback.deliver();
  ASSERT_EQ(server.sides.size(), 130u);
  for (uint32_t i = 0; i < 130; ++i)
    ASSERT_EQ(server.sides[i]->connection.remote_id(), sides[i]->connection.local_id());
}

}  // namespace
}  // namespace vrdma::qp1mux
