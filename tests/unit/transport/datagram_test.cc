#include "transport/shm/datagram.h"

#include <cstring>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::gid_of;
using test::wqe_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Datagrams : Rig {
  rdma::Qp* from = add_datagrams(a);
  rdma::Qp* to = add_datagrams(b);

  static ipc::SendWqe datagram(const std::string& gid, uint32_t qpn, uint8_t sgid_index = 0) {
    ipc::SendWqe wqe = datagram_to(gid, qpn);
    wqe.ud.sgid_index = sgid_index;
    return wqe;
  }
  ipc::SendWqe datagram() const { return datagram("fe80::b", to->qpn); }
  bool receive(uint64_t id = 0, uint32_t length = 4096) {
    return b.post_receive(*to, id, {{kBase, length, b_key}});
  }
  WcStatus send(const ipc::SendWqe& wqe, uint32_t length = 100) {
    const size_t before = from->block->sq_tail;
    EXPECT_TRUE(a.post_send(*from, wqe, {{kBase, length, a_key}}));
    return statuses(*from, before + 1).back();
  }
  uint64_t dropped() const { return world.fabric.counters.datagrams_dropped; }
};

TEST_F(Datagrams, ArriveBehindTheirHeader) {
  std::memset(a.memory(), 0x77, 100);
  ASSERT_TRUE(receive());
  ipc::SendWqe wqe = datagram();
  wqe.imm = 0x01020304;
  wqe.ud.traffic_class = 0x12;
  wqe.ud.flow_label = 0x34567;
  EXPECT_EQ(send(wqe), WcStatus::kSuccess);
  const auto entries = b.received(*to);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].byte_len, 140u);
  EXPECT_EQ(entries[0].src_qpn, from->qpn);
  EXPECT_EQ(entries[0].imm, 0x01020304u);
  EXPECT_NE(entries[0].flags & ipc::kRecvGrh, 0);
  const uint8_t head[] = {0x61, 0x23, 0x45, 0x67, 0, 132, 17, 64};
  EXPECT_EQ(std::memcmp(b.memory(), head, sizeof head), 0);
  EXPECT_EQ(std::memcmp(b.memory() + 8, gid_of("fe80::a").bytes.data(), 16), 0);
  EXPECT_EQ(std::memcmp(b.memory() + 24, gid_of("fe80::b").bytes.data(), 16), 0);
  EXPECT_EQ(b.memory()[40], 0x77);
  EXPECT_EQ(b.memory()[139], 0x77);
  EXPECT_EQ(b.memory()[140], 0);
}

TEST_F(Datagrams, HaveAnIpv4HeaderBetweenIpv4Addresses) {
  ASSERT_TRUE(receive());
  EXPECT_EQ(send(datagram("10.0.0.2", to->qpn, 1)), WcStatus::kSuccess);
  const uint8_t* header = b.memory() + 20;
  EXPECT_EQ(header[0], 0x45);
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<uint32_t>(header[i] << 8 | header[i + 1]);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
  const uint8_t addresses[] = {10, 0, 0, 1, 10, 0, 0, 2};
  EXPECT_EQ(std::memcmp(header + 12, addresses, sizeof addresses), 0);
}

TEST_F(Datagrams, AreLostAndCountedWhereNobodyTakesThem) {
  uint64_t expected = 0;
  const auto lost = [&](const char* why, const ipc::SendWqe& wqe) {
    EXPECT_EQ(send(wqe), WcStatus::kSuccess) << why;
    EXPECT_EQ(dropped(), ++expected) << why;
  };
  lost("no receive", datagram());
  ASSERT_TRUE(receive());
  ipc::SendWqe wqe = datagram();
  wqe.ud.qkey ^= 1;
  lost("another Q_Key", wqe);
  lost("no such GID", datagram("fe80::77", to->qpn));
  lost("no such queue pair", datagram("fe80::b", to->qpn + 1));
  rdma::Qp* connected = b.add_qp();
  connected->set_state(QpState::kRts);
  lost("not a datagram's", datagram("fe80::b", connected->qpn));
  to->set_state(QpState::kInit);
  lost("not ready", datagram());
  EXPECT_THAT(b.received(*to), IsEmpty());
}

TEST_F(Datagrams, UseTheirOwnKeyIfAsked) {
  ASSERT_TRUE(receive());
  ipc::SendWqe wqe = datagram();
  wqe.ud.qkey = 0x80000000;
  EXPECT_EQ(send(wqe), WcStatus::kSuccess);
  EXPECT_THAT(b.received(*to), SizeIs(1));
}

TEST_F(Datagrams, CannotBreakTheirReceiver) {
  ASSERT_TRUE(receive(0, 139));
  EXPECT_EQ(send(datagram()), WcStatus::kSuccess);
  EXPECT_EQ(dropped(), 1u);
  EXPECT_EQ(to->state(), QpState::kRts);
  EXPECT_EQ(send(datagram(), 99), WcStatus::kSuccess);  // the receive is still there
  EXPECT_THAT(b.received(*to), SizeIs(1));
}

// Any queue pair may join a group, so only its Q_Key keeps it private.
TEST_F(Datagrams, ToAGroupReachOnlyMembersWithItsKey) {
  const verbs::Gid group = gid_of("ff0e::7");
  rdma::Qp* other = add_datagrams(b);
  other->attributes.qkey ^= 1;
  for (rdma::Qp* qp : {to, other}) ASSERT_TRUE(world.fabric.attach(*qp, group));
  ASSERT_TRUE(receive());
  ASSERT_TRUE(b.post_receive(*other, 0, {{kBase + 8192, 4096, b_key}}));
  EXPECT_EQ(send(datagram("ff0e::7", verbs::kMulticastQpn)), WcStatus::kSuccess);
  EXPECT_THAT(b.received(*to), SizeIs(1));
  EXPECT_THAT(b.received(*other), IsEmpty());
  EXPECT_EQ(dropped(), 1u);
}

// Served in slices, between which others run.
TEST_F(Datagrams, ToALargeGroupTakeSeveralTurns) {
  const verbs::Gid group = gid_of("ff0e::8");
  std::vector<rdma::Qp*> members;
  for (int i = 0; i < 100; ++i) {
    members.push_back(add_datagrams(b));
    ASSERT_TRUE(world.fabric.attach(*members.back(), group));
    ASSERT_TRUE(b.post_receive(*members.back(), 0, {{kBase, 8192, b_key}}));
  }
  int runs = 0;
  struct Other final : Runnable {
    Other(Lane& lane, int& runs) : Runnable(lane), runs_(runs) {}
    bool run(Turn& turn) override {
      ++runs_;
      turn.spend(kTurnBytes);
      return runs_ < 1000;
    }
    int& runs_;
  } neighbour(b_lane, runs);
  ASSERT_TRUE(
      a.post_send(*from, datagram("ff0e::8", verbs::kMulticastQpn), {{kBase, 4096, a_key}}));
  runner.activate(&neighbour);
  EXPECT_TRUE(wait_for([&] { return from->block->sq_tail == 1; }));
  runner.remove(&neighbour);
  for (rdma::Qp* member : members) EXPECT_THAT(b.received(*member), SizeIs(1));
  EXPECT_GE(runs, 5);  // 400 KiB were copied meanwhile
}

TEST_F(Datagrams, FitIntoOnePacket) {
  ASSERT_TRUE(receive(0, 1u << 20));
  EXPECT_EQ(send(datagram(), 4096), WcStatus::kSuccess);
  EXPECT_EQ(send(datagram(), 4097), WcStatus::kLocalLengthError);
  EXPECT_EQ(from->state(), QpState::kSqe);
}

TEST_F(Datagrams, RefuseWhatTheirSenderHasNot) {
  EXPECT_EQ(send(datagram("fe80::b", to->qpn, 2)), WcStatus::kLocalQpOperationError);
  from = add_datagrams(a);
  ipc::SendWqe wqe = datagram();
  wqe.opcode = static_cast<uint8_t>(Opcode::kRdmaRead);
  EXPECT_EQ(send(wqe), WcStatus::kLocalQpOperationError);
  from = add_datagrams(a);
  ASSERT_TRUE(a.post_send(*from, datagram(), {{kBase, 8, 1}}));
  EXPECT_THAT(statuses(*from, 1), ElementsAre(WcStatus::kLocalProtectionError));
}

TEST_F(Datagrams, GoToAllOfAGroupButTheirSender) {
  const verbs::Gid group = gid_of("ff0e::5");
  rdma::Qp* second = add_datagrams(b);
  for (rdma::Qp* qp : {from, to, second}) ASSERT_TRUE(world.fabric.attach(*qp, group));
  ASSERT_TRUE(receive());
  ASSERT_TRUE(b.post_receive(*second, 1, {{kBase + 8192, 4096, b_key}}));
  ASSERT_TRUE(a.post_receive(*from, 1, {{kBase + 8192, 4096, a_key}}));
  EXPECT_EQ(send(datagram("ff0e::5", verbs::kMulticastQpn)), WcStatus::kSuccess);
  EXPECT_THAT(b.received(*to), SizeIs(1));
  EXPECT_THAT(b.received(*second), SizeIs(1));
  EXPECT_THAT(a.received(*from), IsEmpty());
  EXPECT_EQ(send(datagram("ff0e::6", verbs::kMulticastQpn)), WcStatus::kSuccess);
}

TEST_F(Datagrams, ToAGroupGoOutOnceToo) {
  ASSERT_TRUE(world.fabric.attach(*to, gid_of("ff0e::5")));
  ASSERT_TRUE(receive());
  std::vector<verbs::Gid> out;
  from->sender = std::make_unique<DatagramSender>(
      *from, a_lane,
      [&](const rdma::Qp&, const rdma::WorkRequest&, const NetworkHeader& way,
          std::span<const uint8_t> payload) {
        EXPECT_EQ(payload.size(), 100u);
        out.push_back(way.destination);
        return true;
      });
  for (const char* group : {"ff0e::5", "ff0e::6"})  // the second has no members here
    EXPECT_EQ(send(datagram(group, verbs::kMulticastQpn)), WcStatus::kSuccess);
  EXPECT_THAT(out, ElementsAre(gid_of("ff0e::5"), gid_of("ff0e::6")));
  EXPECT_THAT(b.received(*to), SizeIs(1));
}

TEST_F(Datagrams, AreReachedOnBothSides) {
  std::vector<uint8_t> source(100, 0x3c), target(4096);
  const auto at = [](std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  };
  const uint32_t source_key =
      a.register_memory(at(source), source.size(), kAllAccess, ipc::Way::kReached);
  const uint32_t target_key =
      b.register_memory(at(target), target.size(), kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(b.post_receive(*to, 1, {{at(target), 4096, target_key}}));
  ASSERT_TRUE(b.post_receive(*to, 2, {{at(target), 4096, target_key}}));
  ASSERT_TRUE(a.post_send(*from, datagram(), {{at(source), 100, source_key}}));
  ASSERT_TRUE(wait_for([&] { return b.received(*to).size() == 1; }));
  EXPECT_EQ(target[40], 0x3c);
  EXPECT_EQ(target[139], 0x3c);
  // One whose receiver dies meanwhile.
  ASSERT_TRUE(a.post_send(*from, datagram(), {{at(source), 100, source_key}}));
  ASSERT_TRUE(wait_for([&] { return from->block->sq_tail == 2; }));
  b.context.destroy_qp(*to);
  settle();
}

TEST_F(Datagrams, TakeReceivesFromASharedQueue) {
  rdma::Srq* srq = b.add_srq(4);
  to = add_datagrams(b, srq);
  ASSERT_TRUE(b.post_receive(*srq, 3, {{kBase, 60, b_key}}));
  EXPECT_EQ(send(datagram()), WcStatus::kSuccess);  // too long for it
  EXPECT_EQ(dropped(), 1u);
  EXPECT_EQ(send(datagram(), 20), WcStatus::kSuccess);
  ASSERT_THAT(b.received(*to), SizeIs(1));
  EXPECT_EQ(b.received(*to)[0].slot, 3u);
}

// A worker that dies behind that leaves a datagram that its successor does not send.
TEST_F(Datagrams, ToAnotherHostAreBegunBeforeTheyLeave) {
  uint32_t mark = 0;
  from->sender =
      std::make_unique<DatagramSender>(*from, a_lane,
                                       [&](const rdma::Qp&, const rdma::WorkRequest&,
                                           const NetworkHeader&, std::span<const uint8_t>) {
                                         mark = from->block->mark;
                                         return true;
                                       });
  for (const char* to_host : {"fe80::77", "ff0e::6"}) {
    const uint32_t number = from->block->sq_tail;
    EXPECT_EQ(send(datagram(to_host, to->qpn)), WcStatus::kSuccess);
    EXPECT_EQ(mark, ipc::mark_word(ipc::Mark::kBegun, number)) << to_host;
  }
}

// What a dead worker had begun. Whatever has arrived there since, only what it delivered itself is
// not sent again.
TEST_F(Datagrams, AreSentAgainUnlessADeadWorkerHadDeliveredThem) {
  const auto was_begun = [this](const ipc::SendWqe& wqe, uint32_t receive) {
    from->block->mark_receive = receive;
    from->block->mark = ipc::mark_word(ipc::Mark::kBegun, from->block->sq_tail);
    from->sender->adopted();
    EXPECT_EQ(send(wqe), WcStatus::kSuccess);
    return b.received(*to).size();
  };
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(receive(i));
  EXPECT_EQ(send(datagram()), WcStatus::kSuccess);
  EXPECT_EQ(send(datagram()), WcStatus::kSuccess);
  to->inbox_taken_over = 1;
  EXPECT_EQ(was_begun(datagram(), 0), 2u);
  EXPECT_EQ(was_begun(datagram(), 1), 3u);
  EXPECT_EQ(was_begun(datagram("fe80::b", to->qpn + 1), 0), 3u);  // nobody is there any more
  const std::string group = "ff0e::1";
  ASSERT_TRUE(world.fabric.attach(*to, gid_of(group)));
  EXPECT_EQ(was_begun(datagram(group, 0xffffff), 0), 3u);  // some members may have it
}

TEST_F(Datagrams, EndASessionWithACorruptReceiveQueue) {
  to->block->rq_head = 5000;
  EXPECT_EQ(send(datagram()), WcStatus::kSuccess);
  EXPECT_EQ(b.corrupt, 1);
  EXPECT_EQ(a.corrupt, 0);
}

}  // namespace
}  // namespace vrdma::transport
