// What a transport to other hosts is to be built on: SendRing on one side, Receiver on the other.
#include "tests/unit/transport/remote_peer.h"
#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using rdma::Outcome;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Remote : Rig {
  World::Pair pair = world.connected();
  rdma::Qp& qp = *pair.a;
  RemotePeer peer;
  NetworkSender* sender = nullptr;
  NetworkReceiver receiver{qp, *world.loop};
  std::vector<uint8_t> own = std::vector<uint8_t>(4096);  // that has to be reached
  uint32_t own_key = a.register_memory(at(own), own.size(), kAllAccess, ipc::Way::kReached);

  Remote() {
    world.fabric.remove(&world.b_device);
    world.fabric.move_to(qp, {test::gid_of("fe80::b"), pair.b->qpn, 7, 9});
    auto made = std::make_unique<NetworkSender>(qp, peer);
    sender = made.get();
    qp.sender = std::move(made);
  }
  static uint64_t at(const std::vector<uint8_t>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }
  static std::vector<uint8_t> text(const char* bytes) {
    return {bytes, bytes + std::strlen(bytes)};
  }
};

TEST_F(Remote, CompletesAWindowOfRequests) {
  std::memcpy(a.memory(), "one two", 7);
  for (const uint64_t offset : {0, 4})
    ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase + offset, 3, a_key}}));
  ASSERT_TRUE(a.post_send(qp, rdma_wqe(Opcode::kRdmaWrite, 100, 1), {{kBase + 4, 3, a_key}}));
  peer.memory[200] = 42;
  ASSERT_TRUE(a.post_send(qp, rdma_wqe(Opcode::kRdmaRead, 200, 1), {{kBase + 64, 1, a_key}}));
  ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase, 7, a_key}}));
  EXPECT_EQ(sender->in_flight(), NetworkSender::kWindow) << "the last one waits for room";
  EXPECT_THAT(peer.messages, ElementsAre(text("one"), text("two")));
  EXPECT_EQ(std::memcmp(&peer.memory[100], "two", 3), 0);
  EXPECT_THAT(a.results(qp), SizeIs(0));

  sender->acknowledge(3);
  EXPECT_THAT(a.results(qp), SizeIs(3));
  EXPECT_THAT(peer.messages, SizeIs(3));
  EXPECT_EQ(*a.memory(kBase + 64), 0) << "the answer is not there yet";
  sender->acknowledge(2);
  EXPECT_EQ(*a.memory(kBase + 64), 42);
  EXPECT_THAT(statuses(qp, 5), Each(WcStatus::kSuccess));
  EXPECT_EQ(a.results(qp)[3].byte_len, 1u);
  EXPECT_EQ(token(qp), ipc::Token::kFree);
}

TEST_F(Remote, FlushesWhatIsInFlightWhenTheQueuePairFails) {
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(a.post_send(qp, wqe_of(Opcode::kSend), {{kBase, 1, a_key}}));
  sender->acknowledge(1);
  qp.fail();
  EXPECT_EQ(sender->in_flight(), 0u);
  EXPECT_EQ(token(qp), ipc::Token::kFree) << "so that the program can flush";
  EXPECT_THAT(a.results(qp), SizeIs(1));
}

TEST_F(Remote, ReceivesMessages) {
  std::vector<uint8_t> message = text("hello");
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kNoReceive);
  ASSERT_TRUE(a.post_receive(qp, 1, {{kBase, 2, a_key}, {at(own), 100, own_key}}));
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kDone);
  EXPECT_EQ(std::memcmp(a.memory(), "he", 2), 0);
  EXPECT_EQ(std::memcmp(own.data(), "llo", 3), 0);
  ASSERT_THAT(a.received(qp), SizeIs(1));
  EXPECT_EQ(a.received(qp)[0].byte_len, 5u);

  ASSERT_TRUE(a.post_receive(qp, 2, {{kBase, 2, a_key}}));
  EXPECT_EQ(receiver.arrive(wqe_of(Opcode::kSend), &message), Outcome::kReceiveTooSmall);
  EXPECT_EQ(receiver.nak, WcStatus::kRemoteInvalidRequest);
  ASSERT_THAT(a.received(qp), SizeIs(2));
  EXPECT_EQ(a.received(qp)[1].status, static_cast<uint8_t>(WcStatus::kLocalLengthError));
  EXPECT_EQ(qp.state(), QpState::kErr);
}

TEST_F(Remote, WritesAndReads) {
  for (const auto& [addr, key] : {std::pair{kBase + 100, a_key}, std::pair{at(own) + 4, own_key}}) {
    std::vector<uint8_t> bytes = text("written");
    EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaWrite, addr, key), &bytes), Outcome::kDone);
    std::vector<uint8_t> answer(7);
    EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaRead, addr, key), &answer), Outcome::kDone);
    EXPECT_EQ(answer, bytes);
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, addr + 12, key);
    add.rdma.compare_add = 5;
    std::vector<uint8_t> old(8);
    for (const int value : {0, 5}) {
      EXPECT_EQ(receiver.arrive(add, &old), Outcome::kDone);
      EXPECT_EQ(old[0], value);
    }
  }
  EXPECT_EQ(std::memcmp(a.memory(kBase + 100), "written", 7), 0);
  EXPECT_EQ(std::memcmp(&own[4], "written", 7), 0);
  EXPECT_THAT(a.received(qp), SizeIs(0));

  std::vector<uint8_t> bytes = text("x");
  EXPECT_EQ(receiver.arrive(rdma_wqe(Opcode::kRdmaWrite, kBase, a_key ^ 1), &bytes),
            Outcome::kRemoteAccess);
  EXPECT_EQ(receiver.nak, WcStatus::kRemoteAccessError);
  EXPECT_EQ(qp.state(), QpState::kErr);
}

TEST_F(Remote, TakesReceivesOfASharedQueueAndGivesThemBack) {
  test::Party::QpOptions shared;
  shared.srq = a.add_srq(8);
  rdma::Qp& with_srq = *world.add_qp(a, shared);
  with_srq.set_state(QpState::kRts);
  ASSERT_TRUE(a.post_receive(*shared.srq, 3, {{kBase, 100, a_key}}));
  rdma::WorkRequest request{};
  request.wqe = wqe_of(Opcode::kSend);
  rdma::Plan plan;
  plan.opcode = Opcode::kSend;
  plan.length = 5;
  plan.reached = false;
  {
    Receiver gone;  // with its connection, in the middle of a message
    ASSERT_EQ(gone.prepare(with_srq, request, &plan), Outcome::kDone);
    EXPECT_EQ(rdma::count_waiting(shared.srq->receives), 0u);
  }
  NetworkReceiver again{with_srq, *world.loop};
  std::vector<uint8_t> message = text("hello");
  EXPECT_EQ(again.arrive(request.wqe, &message), Outcome::kDone);
  ASSERT_THAT(a.received(with_srq), SizeIs(1));
  EXPECT_EQ(a.received(with_srq)[0].slot, 3u);
}

}  // namespace
}  // namespace vrdma::transport
