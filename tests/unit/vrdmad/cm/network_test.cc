// Programs whose peer is on another host.
#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/cm/rig.h"

namespace vrdma::vrdmad {
namespace {

using ipc::CmCall;
using qp1mux::CmEventType;

constexpr uint64_t kFar = 9;  // an address of no vdevice here

struct FakeNetwork final : CmNetwork {
  void send(const qp1mux::Packet& packet) override { sent.push_back(packet.destination); }
  [[nodiscard]] bool leads_to(const CmDevice& from, const verbs::Gid& remote) const override {
    return from.fabric() == "blue" || remote == CmRig::gid(kFar);
  }
  std::shared_ptr<void> look_up(const CmDevice&, const qp1mux::Route& route, const verbs::Gid&,
                                qp1mux::Routes::Answer answer) override {
    asked.emplace_back(route, std::move(answer));
    return nullptr;
  }
  std::optional<verbs::Gid> source_to(const CmDevice&, const verbs::Gid&,
                                      const verbs::Gid&) override {
    return source;
  }
  bool arrived(uint64_t, const Caller&, bool first) override {
    arrivals.push_back(first);
    return true;
  }
  void answer() {
    auto [route, tell] = asked.back();
    route.hop_limit = 3;
    tell(route);
  }
  std::optional<verbs::Gid> source;  // of the kernel's choice
  std::vector<bool> arrivals;        // each: the first of its session
  std::vector<verbs::Gid> sent;
  std::vector<std::pair<qp1mux::Route, qp1mux::Routes::Answer>> asked;
};

struct CmNetworked : testing::Test {
  TempDir temp;
  const std::string state_dir = temp.path();
  FakeNetwork network;
  CmRig rig{&network};
  CmClient one{rig, 0};

  CmNetworked() { rig.cm.keep_sessions(state_dir); }
  static CmEventType type(const std::optional<ipc::CmEventMessage>& message) {
    EXPECT_TRUE(message) << "no event";
    return message ? static_cast<CmEventType>(message->type) : CmEventType::kTimewaitExit;
  }
};

TEST_F(CmNetworked, ConnectWhenTheNetworkHasAnswered) {
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.resolve(id, CmRig::address(kFar, kPort)), 0);
  EXPECT_EQ(one.reply.where.node_guid, 0u) << "it is not resolved yet";
  EXPECT_FALSE(one.event());
  EXPECT_EQ(one.call(CmCall::kResolveRoute, id), EINVAL);
  ASSERT_EQ(network.asked.size(), 1u);
  network.answer();
  const auto message = one.event();
  EXPECT_EQ(type(message), CmEventType::kAddrResolved);
  EXPECT_EQ(message->where.node_guid, 100u);
  EXPECT_EQ(message->where.hop_limit, 3);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
  ASSERT_EQ(one.with_qp(CmCall::kConnect, id, 3), 0);
  rig.settle();
  EXPECT_EQ(network.sent, std::vector{CmRig::gid(kFar)});
}

// Each arrival may ask the broker for each address.
TEST_F(CmNetworked, ArriveOnceASecondHoweverOftenTheProgramAsks) {
  for (int i = 0; i < 100; ++i) one.id(one.channel());
  EXPECT_EQ(network.arrivals, std::vector{true});
  CmClient two(rig, 0);
  two.channel();
  EXPECT_EQ(network.arrivals, (std::vector{true, true}));
  EXPECT_TRUE(eventually([&] {
    one.channel();
    return network.arrivals.size() > 2;
  }));
  EXPECT_FALSE(network.arrivals.back());
}

TEST_F(CmNetworked, GiveUpWhenTheProgramWantsTo) {
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.resolve(id, CmRig::address(kFar, kPort), 20), 0);
  std::optional<ipc::CmEventMessage> message;
  const auto begin = base::Clock::steady().now();
  EXPECT_TRUE(eventually([&] { return (message = one.event()).has_value(); }));
  EXPECT_LT(base::Clock::steady().now() - begin, qp1mux::CmId::kPatience);
  EXPECT_EQ(type(message), CmEventType::kAddrError);
  EXPECT_EQ(message->status, -ETIMEDOUT);
}

TEST_F(CmNetworked, PreferAPeerOnThisHost) {
  CmDeviceSetup blue;
  blue.name = "vc";
  blue.tenant = blue.fabric = "blue";
  blue.netns = 1;
  blue.node_guid = 102;
  auto other_vdevice = std::move(*rig.cm.attach(std::move(blue)));
  other_vdevice->update({CmRig::gid(2)}, 4096);  // more like the peer's address than ours is
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.resolve(id, CmRig::address(1, kPort)), 0);
  EXPECT_EQ(type(one.event()), CmEventType::kAddrResolved);
  EXPECT_TRUE(network.asked.empty());
  other_vdevice.reset();
  const uint32_t other = one.id(one.channels.front().first);
  ASSERT_EQ(one.resolve(other, CmRig::address(kFar + 1, kPort)), 0);
  const auto message = one.event();
  EXPECT_EQ(type(message), CmEventType::kAddrError);
  EXPECT_EQ(message->status, -EHOSTUNREACH) << "the network does not lead there";
}

TEST_F(CmNetworked, LeaveByTheVdeviceOfTheKernelsChoice) {
  CmDeviceSetup other;
  other.name = "vd";
  other.tenant = other.fabric = "blue";
  other.netns = 1;
  other.node_guid = 103;
  const auto second = std::move(*rig.cm.attach(std::move(other)));
  second->update({CmRig::gid(200)}, 4096);
  const auto leaves_from = [&](std::optional<verbs::Gid> kernels) {
    network.source = kernels;
    const uint32_t id = one.id(one.channels.empty() ? one.channel() : one.channels.front().first);
    EXPECT_EQ(one.resolve(id, CmRig::address(kFar, kPort)), 0);
    return network.asked.back().first.local;
  };
  const verbs::Gid alike = leaves_from(std::nullopt);
  EXPECT_NE(alike, CmRig::gid(200));
  EXPECT_EQ(leaves_from(CmRig::gid(200)), CmRig::gid(200));
  EXPECT_EQ(leaves_from(CmRig::gid(201)), alike) << "that of no vdevice";
}

TEST_F(CmNetworked, AskAgainWithTheNextDaemon) {
  const uint32_t id = one.id(one.channel());
  ASSERT_EQ(one.resolve(id, CmRig::address(kFar, kPort)), 0);
  rig.replace_daemon(state_dir);
  ASSERT_EQ(network.asked.size(), 2u);
  ASSERT_EQ(one.resume(), 0);
  ASSERT_EQ(one.call(CmCall::kCreateChannel, one.channels.front().first), 0);
  one.channels.front().second = std::move(one.beside);
  EXPECT_FALSE(one.event());
  network.answer();
  EXPECT_EQ(type(one.event()), CmEventType::kAddrResolved);
  ASSERT_EQ(one.call(CmCall::kResolveRoute, id), 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
