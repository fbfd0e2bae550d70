// Without packet sockets, which need a privilege: one end of a socket pair stands for the netdev.
#include "transport/raw/packet.h"

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "core/ipc/socket.h"
#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::wqe_of;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

constexpr std::array<uint8_t, 6> kMac{2, 0, 0, 0, 0, 7};
constexpr uint32_t kFrame = 80;

struct Packets : Rig {
  base::Fd wire;
  std::vector<std::unique_ptr<rdma::Flow>> flows;
  rdma::Qp* from = make(&wire);
  base::Fd other_wire;
  rdma::Qp* to = make(&other_wire);

  Packets() {
    world.a_device.mac = kMac;
    for (uint32_t i = 0; i < kFrame; ++i) a.memory()[i] = static_cast<uint8_t>(i);
    std::memcpy(a.memory() + 6, kMac.data(), kMac.size());
  }

  rdma::Qp* make(base::Fd* end) {
    auto ends = ipc::make_socket_pair(SOCK_NONBLOCK).value();
    *end = std::move(ends.first);
    test::Party::QpOptions options;
    options.type = verbs::QpType::kRawPacket;
    world.make_sender = [&](rdma::Qp& qp) {
      auto port =
          std::make_unique<PacketPort>(qp, *world.loop, std::move(ends.second), 1, [](base::Fd) {});
      auto queue = std::make_unique<PacketSender>(qp, a_lane, *port);
      qp.frames = std::move(port);
      return queue;
    };
    rdma::Qp* qp = world.add_qp(a, options);
    world.a_device.raw_qps.push_back(qp);
    qp->set_state(QpState::kRts);
    return qp;
  }
  // For frames whose byte `at` is `value`.
  void want(rdma::Qp* qp, size_t at, uint8_t value) {
    auto flow = std::make_unique<rdma::Flow>();
    flow->match.value[at] = value;
    flow->match.mask[at] = 0xff;
    qp->flows.push_back(flow.get());
    flows.push_back(std::move(flow));
  }
  bool receive(uint32_t length = 4096) {
    return a.post_receive(*to, 1, {{kBase + 8192, length, a_key}});
  }
  WcStatus send(uint32_t length = kFrame, Opcode opcode = Opcode::kSend) {
    from->set_state(QpState::kRts);  // from SQE
    const size_t before = from->block->sq_tail;
    EXPECT_TRUE(a.post_send(*from, wqe_of(opcode), {{kBase, length, a_key}}));
    return statuses(*from, before + 1).back();
  }
  // The next frame that went out; empty: none.
  std::vector<uint8_t> sent() const {
    std::vector<uint8_t> frame(8192);
    const ssize_t got = ::recv(wire.get(), frame.data(), frame.size(), MSG_DONTWAIT);
    frame.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return frame;
  }
  uint64_t dropped() const { return world.fabric.counters.datagrams_dropped; }
};

TEST_F(Packets, GoOutAsTheyAre) {
  EXPECT_EQ(send(), WcStatus::kSuccess);
  EXPECT_EQ(sent(), std::vector<uint8_t>(a.memory(), a.memory() + kFrame));
  EXPECT_EQ(send(14), WcStatus::kSuccess);
  EXPECT_THAT(sent(), SizeIs(14));
}

TEST_F(Packets, AreNeverInTheNameOfAnother) {
  ASSERT_TRUE(receive());
  want(to, 20, 20);
  for (int i = 6; i < 12; ++i) {
    a.memory()[i] ^= 1;
    EXPECT_EQ(send(), WcStatus::kLocalQpOperationError) << i;
    a.memory()[i] ^= 1;
  }
  world.a_device.mac = std::nullopt;
  EXPECT_EQ(send(), WcStatus::kLocalQpOperationError);
  EXPECT_THAT(sent(), IsEmpty());
  EXPECT_THAT(a.received(*to), IsEmpty());
  EXPECT_EQ(from->state(), QpState::kSqe);
  world.a_device.mac = kMac;
  EXPECT_EQ(send(), WcStatus::kSuccess);
}

TEST_F(Packets, AreFramesOfTheNetdev) {
  for (const uint32_t length : {1u, 13u}) EXPECT_EQ(send(length), WcStatus::kLocalLengthError);
  const uint32_t longest = world.a_device.mtu + 18;  // with a VLAN tag
  EXPECT_EQ(send(longest), WcStatus::kSuccess);
  EXPECT_THAT(sent(), SizeIs(longest));
  EXPECT_EQ(send(longest + 1), WcStatus::kLocalLengthError);
  EXPECT_EQ(send(kFrame, Opcode::kSendWithImm), WcStatus::kLocalQpOperationError);
  EXPECT_EQ(send(kFrame, Opcode::kRdmaWrite), WcStatus::kLocalQpOperationError);
  EXPECT_THAT(sent(), IsEmpty());
}

TEST_F(Packets, ReachTheVdevicesOthersThatHaveAFlowForThem) {
  ASSERT_TRUE(receive());
  EXPECT_EQ(send(), WcStatus::kSuccess);
  want(to, 20, 21);
  EXPECT_EQ(send(), WcStatus::kSuccess);
  EXPECT_THAT(a.received(*to), IsEmpty());
  EXPECT_EQ(dropped(), 0u);  // it was nobody's
  want(to, 20, 20);
  want(from, 20, 20);
  EXPECT_EQ(send(), WcStatus::kSuccess);
  ASSERT_THAT(a.received(*to), SizeIs(1));  // one frame, although two flows could be its
  EXPECT_EQ(a.received(*to)[0].byte_len, kFrame);
  EXPECT_EQ(a.received(*to)[0].flags & ipc::kRecvGrh, 0);
  EXPECT_EQ(std::memcmp(a.memory(kBase + 8192), a.memory(), kFrame), 0);
  EXPECT_THAT(a.received(*from), IsEmpty());  // not its sender
  EXPECT_EQ(send(), WcStatus::kSuccess);      // without a receive
  EXPECT_EQ(dropped(), 1u);
  ASSERT_TRUE(receive(kFrame - 1));
  EXPECT_EQ(send(), WcStatus::kSuccess);  // too long for it
  EXPECT_EQ(dropped(), 2u);
  EXPECT_THAT(a.received(*to), SizeIs(1));
}

TEST_F(Packets, MatchWholeMasks) {
  ASSERT_TRUE(receive());
  want(to, 20, 20);
  to->frames->take(a.memory(), 20);  // it ends before
  EXPECT_THAT(a.received(*to), IsEmpty());
  to->frames->take(a.memory(), 21);
  EXPECT_THAT(a.received(*to), SizeIs(1));
}

TEST_F(Packets, AreLostWhereTheNetdevTakesNone) {
  wire.reset();
  EXPECT_EQ(send(), WcStatus::kSuccess);
  EXPECT_EQ(dropped(), 1u);
}

}  // namespace
}  // namespace vrdma::transport
