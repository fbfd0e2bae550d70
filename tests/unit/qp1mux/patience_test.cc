// Requests that arrive before their listener.
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

constexpr milliseconds kPatience(100);

// b listens late, or never.
struct Late : testing::Test {
  Rig rig;
  verbs::Gid gid_a = gid("10.0.0.1"), gid_b = gid("10.0.0.2");
  Host& host = rig.host(kPatience);
  Endpoint a = TwoHosts::attach(host, setup("a", 0xa), gid_a);
  Endpoint b = TwoHosts::attach(host, setup("b", 0xb), gid_b);
  Server server;
  Side client;

  void ask(uint64_t service = kService) {
    Req req;
    req.path.local = gid_a;
    req.path.remote = gid_b;
    req.service_id = service;
    req.qpn = 0x11;
    client.connection = a.connection(&client);
    ASSERT_TRUE(client.connection.send_req(req));
  }
  Listener listen(uint64_t service = kService) {
    return std::move(b.listen(service, std::nullopt, 8, &server).value());
  }
};

TEST_F(Late, MeetWhoListensInTime) {
  ask();
  rig.run(kPatience - milliseconds(10));
  EXPECT_EQ(client.state(), State::kReqSent);
  const Listener other = listen(kService + 1);
  rig.run();
  EXPECT_TRUE(server.sides.empty());
  const Listener listener = listen();
  rig.run();
  ASSERT_EQ(server.sides.size(), 1u) << "once, however often it was sent";
  EXPECT_EQ(server.last().state(), State::kReqReceived);
  rig.run(kMinute);
  EXPECT_EQ(server.sides.size(), 1u);
}

TEST_F(Late, AreRefusedWhenNobodyListens) {
  ask();
  rig.run(kPatience - milliseconds(1));
  EXPECT_TRUE(client.events.empty());
  rig.run(milliseconds(2));
  EXPECT_EQ(client.reason, RejectReason::kInvalidServiceId);
  EXPECT_EQ(b.counters().rejects_sent[static_cast<size_t>(RejectReason::kInvalidServiceId)], 1u);
}

TEST_F(Late, ResolveAServiceInTime) {
  SidrReq req;
  req.path.local = gid_a;
  req.path.remote = gid_b;
  req.service_id = kDatagramService;
  client.connection = a.connection(&client);
  ASSERT_TRUE(client.connection.send_sidr_req(req));
  rig.run(milliseconds(10));
  const Listener listener = listen(kDatagramService);
  rig.run();
  ASSERT_EQ(server.sides.size(), 1u);
}

TEST_F(Late, DoNotWaitWithoutBound) {
  a.set_limits({.early = 256});
  std::vector<std::unique_ptr<Side>> sides;
  for (uint32_t i = 0; i < 300; ++i) {
    Req req;
    req.path.local = gid_a;
    req.path.remote = gid_b;
    req.service_id = kService;
    req.qpn = i + 1;
    auto& side = *sides.emplace_back(std::make_unique<Side>());
    side.connection = a.connection(&side);
    ASSERT_TRUE(side.connection.send_req(req));
  }
  rig.run(milliseconds(1));
  size_t refused = 0;
  for (const auto& side : sides) refused += side->saw(EventKind::kRejReceived) ? 1 : 0;
  EXPECT_EQ(refused, 300u - 256u);
  EXPECT_EQ(a.counters().impatient, 300u - 256u);
  EXPECT_EQ(a.use().early, 256u);
  b = {};  // without its vdevice they have no listener to wait for
  EXPECT_EQ(a.use().early, 0u);
  rig.run(kPatience);
}

}  // namespace
}  // namespace vrdma::qp1mux
