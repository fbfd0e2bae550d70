// Send queues of a device that may have few bytes in hand.
#include "core/rdma/buffers.h"

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::rdma_wqe;
using test::World;
using testing::Each;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Held : Rig {
  rdma::Buffers buffers{*world.loop}, receivers{*world.loop};
  std::vector<uint8_t> a_own = std::vector<uint8_t>(1u << 20, uint8_t{7});
  std::vector<uint8_t> b_own = std::vector<uint8_t>(1u << 20);
  uint32_t a_reached = reached(a, a_own), b_reached = reached(b, b_own);

  Held() {
    world.a_device.buffers = &buffers;
    world.b_device.buffers = &receivers;
    buffers.set_limit(1);  // one at a time
  }
  ~Held() override {
    world.b.reset();  // before their buffers
    world.a.reset();
    world.a_device.buffers = world.b_device.buffers = nullptr;
  }
  static uint64_t at(const std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  static uint32_t reached(test::Party& party, const std::vector<uint8_t>& memory) {
    return party.register_memory(at(memory), memory.size(), kAllAccess, ipc::Way::kReached);
  }
};

TEST_F(Held, WaitForEachOtherAndAllComplete) {
  const auto length = static_cast<uint32_t>(a_own.size());
  std::vector<World::Pair> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(world.connected());
  for (const auto& pair : pairs) {
    for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead})
      ASSERT_TRUE(a.post_send(*pair.a, rdma_wqe(opcode, at(b_own), b_reached),
                              {{at(a_own), length, a_reached}}));
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
    ASSERT_TRUE(a.post_send(*pair.a, add, {{at(a_own) + 64, 8, a_reached}}));
  }
  for (const auto& pair : pairs) {
    EXPECT_THAT(statuses(*pair.a, 3), Each(WcStatus::kSuccess));
    EXPECT_THAT(statuses(*pair.a, 3), SizeIs(3));
  }
  EXPECT_EQ(b_own[4096], 7);
  EXPECT_GT(buffers.refused(), 0u);
  EXPECT_TRUE(wait_for([&] { return buffers.held() == 0; }));
  EXPECT_EQ(receivers.refused(), 0u);
}

TEST_F(Held, LeaveTheLineWhenTheirLinkGoes) {
  auto stuck = buffers.make(1);
  const World::Pair pair = world.connected(), other = world.connected();
  for (const auto* each : {&pair, &other})
    ASSERT_TRUE(a.post_send(*each->a, rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached),
                            {{at(a_own), 100, a_reached}}));
  settle();
  EXPECT_EQ(buffers.refused(), 2u);
  pair.a->set_state(QpState::kErr);
  pair.a->sender->link_changed();
  stuck.reset();
  EXPECT_THAT(statuses(*other.a, 1), Each(WcStatus::kSuccess));
}

TEST_F(Held, WaitWithDatagramsToo) {
  rdma::Qp* const from = add_datagrams(a);
  rdma::Qp* const to = add_datagrams(b);
  auto taken = buffers.make(1);
  ASSERT_TRUE(b.post_receive(*to, 1, {{kBase, 4096, b_key}}));
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{kBase, 100, a_key}}));
  settle();
  EXPECT_EQ(from->block->sq_tail, 0u);
  taken.reset();
  EXPECT_THAT(statuses(*from, 1), Each(WcStatus::kSuccess));
  EXPECT_TRUE(wait_for([&] { return buffers.held() == 0; }));
}

// What must be reached at the receiver is the receiver's; without room for it the datagram is lost.
TEST_F(Held, ArePaidForByWhoReceivesADatagram) {
  rdma::Qp* const from = add_datagrams(a);
  rdma::Qp* const to = add_datagrams(b);
  receivers.set_limit(1);
  auto taken = receivers.make(1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(b.post_receive(*to, 1, {{at(b_own), 4096, b_reached}}));
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{at(a_own), 100, a_reached}}));
  EXPECT_THAT(statuses(*from, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(world.fabric.counters.datagrams_dropped, 1u);
  EXPECT_EQ(receivers.refused(), 1u);
  EXPECT_EQ(b_own[40], 0);
  taken.reset();
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{at(a_own), 100, a_reached}}));
  EXPECT_THAT(statuses(*from, 2), Each(WcStatus::kSuccess));
  EXPECT_TRUE(wait_for([&] { return b_own[40] == 7; }));
  EXPECT_TRUE(wait_for([&] { return receivers.held() == 0; }));
}

}  // namespace
}  // namespace vrdma::transport
