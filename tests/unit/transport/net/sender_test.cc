// Two queue pairs of two devices, connected by memory in place of a network.
#include "transport/net/sender.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "core/rdma/window.h"
#include "tests/unit/transport/net/net_rig.h"
#include "transport/net/datagram.h"
#include "transport/shm/datagram.h"

namespace vrdma::transport::net {
namespace {

using test::rdma_wqe;
using test::wqe_of;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

TEST_F(Net, SendsToReceives) {
  connect();
  std::memcpy(a.memory(), "one two", 7);
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 100, b_key}}));
  ASSERT_TRUE(b.post_receive(*qp_b, 2, {{kBase + 100, 2, b_key}, {at(b_own), 100, b_own_key}}));
  ASSERT_TRUE(b.post_receive(*qp_b, 3, {}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key}}));
  ipc::SendWqe with_imm = wqe_of(Opcode::kSendWithImm, ipc::kSignaled | ipc::kSolicited);
  with_imm.imm = 77;
  ASSERT_TRUE(a.post_send(*qp_a, with_imm, {{kBase + 4, 3, a_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {}));
  EXPECT_THAT(statuses(*qp_a, 3), Each(WcStatus::kSuccess));
  const auto received = b.received(*qp_b);
  ASSERT_THAT(received, SizeIs(3));
  EXPECT_EQ(std::memcmp(b.memory(), "one", 3), 0);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 100), "tw", 2), 0);
  EXPECT_EQ(b_own[0], 'o');
  EXPECT_EQ(received[0].byte_len, 3u);
  EXPECT_EQ(received[1].imm, 77u);
  EXPECT_EQ(received[1].opcode, static_cast<uint8_t>(Opcode::kSendWithImm));
  EXPECT_EQ(received[1].flags & ipc::kRecvSolicited, ipc::kRecvSolicited);
  EXPECT_EQ(received[2].byte_len, 0u);
  EXPECT_EQ(token(*qp_a), ipc::Token::kFree);
  EXPECT_TRUE(qp_a->sender->drained());
}

// In place and reached, at both ends.
TEST_F(Net, WritesAndReads) {
  connect();
  size_t done = 0;
  for (const auto& [own, key] : {std::pair{kBase, a_key}, std::pair{at(a_own), a_own_key}})
    for (const auto& [addr, rkey] :
         {std::pair{kBase + 4096, b_key}, std::pair{at(b_own), b_own_key}}) {
      const auto bytes = pattern(70'000 + done);
      auto* const mine = key == a_key ? a.memory() : a_own.data();
      auto* const theirs = rkey == b_key ? b.memory(kBase + 4096) : b_own.data();
      const auto length = static_cast<uint32_t>(bytes.size());
      std::memcpy(mine, bytes.data(), length);
      std::memset(theirs, 0, length);
      ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, addr, rkey), {{own, length, key}}));
      EXPECT_TRUE(wait_for([&] { return a.results(*qp_a).size() > done; }));
      EXPECT_EQ(std::memcmp(theirs, bytes.data(), length), 0);
      std::memset(mine, 0, length);
      ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaRead, addr, rkey), {{own, length, key}}));
      done += 2;
      EXPECT_THAT(statuses(*qp_a, done), Each(WcStatus::kSuccess));
      EXPECT_EQ(std::memcmp(mine, bytes.data(), length), 0);
      EXPECT_EQ(a.results(*qp_a).back().byte_len, length);
    }
  EXPECT_THAT(b.received(*qp_b), IsEmpty());
}

// The program that closes its device has been told that nothing is stored any more; its queue pair
// stays as it is.
TEST_F(Net, StoresNothingForAProgramThatCloses) {
  connect();
  std::memcpy(a.memory(), "late", 4);
  world.fabric.cut(*qp_b);
  ASSERT_EQ(qp_b->state(), QpState::kRts);
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 4, a_key}}));
  ASSERT_TRUE(wait_for([&] { return b_counters.bad_state > 0; }));
  settle();
  EXPECT_EQ(*b.memory(), 0);
}

// Nor anything of what came before and waits for its page.
TEST_F(Net, StoresNothingMoreForAProgramThatCloses) {
  connect();
  const auto bytes = pattern(20'000);
  std::memcpy(a.memory(), bytes.data(), bytes.size());
  rdma::Reach& reach = *b.context.process->reach();
  std::unique_lock page(*reach.memory()->changes);
  alignas(8) uint64_t word = 0;
  rdma::Reach::Job hangs;
  hangs.parts.push_back({reinterpret_cast<uint64_t>(&word), sizeof word, 0});
  hangs.buffer = std::make_shared<std::vector<uint8_t>>(sizeof word);
  hangs.change = [](uint64_t old) { return old + 1; };
  hangs.done = [](bool) {};
  reach.submit(std::move(hangs));
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, at(b_own), b_own_key),
                          {{kBase, static_cast<uint32_t>(bytes.size()), a_key}}));
  ASSERT_TRUE(wait_for([&] { return qp_b->block->arriving.load() == 1; }));
  settle();
  bool told = false;
  world.fabric.cut(*qp_b);
  reach.barrier([&] { told = true; });
  page.unlock();
  ASSERT_TRUE(wait_for([&] { return told; }));
  std::fill(b_own.begin(), b_own.end(), uint8_t{0});
  settle(20);
  EXPECT_THAT(b_own, Each(0));
}

TEST_F(Net, ChangesOperands) {
  connect();
  const uint64_t reached = (at(b_own) + 7) / 8 * 8;
  size_t done = 0;
  for (const auto& [addr, key] : {std::pair{kBase + 8, b_key}, std::pair{reached, b_own_key}}) {
    uint8_t* const operand =
        key == b_key ? b.memory(kBase + 8) : b_own.data() + (reached - at(b_own));
    std::memset(operand, 0, 8);
    ipc::SendWqe add = remote(Opcode::kFetchAdd, addr, key);
    add.rdma.compare_add = 5;
    ASSERT_TRUE(a.post_send(*qp_a, add, {{kBase, 8, a_key}}));
    ASSERT_TRUE(a.post_send(*qp_a, add, {{at(a_own), 8, a_own_key}}));
    ipc::SendWqe stored = remote(Opcode::kAtomicWrite, addr + 8, key);
    stored.rdma.compare_add = 42;
    ASSERT_TRUE(a.post_send(*qp_a, stored, {}));
    done += 3;
    EXPECT_THAT(statuses(*qp_a, done), Each(WcStatus::kSuccess));
    EXPECT_EQ(operand[0], 10);
    EXPECT_EQ(operand[8], 42);
    EXPECT_EQ(*a.memory(), 0);
    EXPECT_EQ(a_own[0], 5);
  }
}

TEST_F(Net, WaitsForAReceiveThatIsPostedLater) {
  connect();
  qp_b->attributes.min_rnr_timer = 0;  // its sender does not send again soon
  qp_b->sender->attributes_changed();
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3000, a_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key}}));
  settle(20);
  EXPECT_THAT(a.results(*qp_a), IsEmpty());
  EXPECT_GE(b_counters.out_of_buffer, 1u);
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 4000, b_key}}));
  ASSERT_TRUE(b.post_receive(*qp_b, 2, {{kBase, 4000, b_key}}));
  ring(*qp_b);
  EXPECT_THAT(statuses(*qp_a, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(qp_b->block->rq_waiter, 0u);
}

TEST_F(Net, TakesReceivesOfASharedQueue) {
  test::Party::QpOptions shared;
  shared.srq = b.add_srq(8);
  connect({}, shared);
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3000, a_key}}));
  settle();
  for (const uint32_t slot : {3u, 5u})
    ASSERT_TRUE(b.post_receive(*shared.srq, slot, {{kBase, 4000, b_key}}));
  ring(*qp_b);
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  ASSERT_THAT(b.received(*qp_b), SizeIs(1));
  EXPECT_EQ(b.received(*qp_b)[0].slot, 3u);
  EXPECT_EQ(rdma::count_waiting(shared.srq->receives), 1u);
}

// The program owns the receive again, and its memory: no other message may take it.
TEST_F(Net, GivesNoReceiveBackThatCompletedWithAnError) {
  test::Party::QpOptions shared;
  shared.srq = b.add_srq(8);
  connect({}, shared);
  const uint32_t gone = b.register_memory(4096, 4096, kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(b.post_receive(*shared.srq, 3, {{4096, 100, gone}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 100, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kRemoteOperationError));
  settle();
  ASSERT_THAT(b.received(*qp_b), SizeIs(1));
  EXPECT_EQ(b.received(*qp_b)[0].slot, 3u);
  EXPECT_EQ(b.received(*qp_b)[0].status, static_cast<uint8_t>(WcStatus::kLocalProtectionError));
  EXPECT_EQ(shared.srq->block->returned_head.load(), 0u);
  EXPECT_EQ(rdma::count_waiting(shared.srq->receives), 0u);
}

TEST_F(Net, CompletesWithErrorsInOrder) {
  connect();
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 100, b_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key ^ 1}}));
  EXPECT_THAT(statuses(*qp_a, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kLocalProtectionError));
  EXPECT_EQ(qp_a->state(), QpState::kErr);
  EXPECT_EQ(token(*qp_a), ipc::Token::kFree) << "so that the program can flush";
}

TEST_F(Net, TellsWhyAPeerRefuses) {
  connect();
  ASSERT_TRUE(
      a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key ^ 1), {{kBase, 5000, a_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 5, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kRemoteAccessError));
  EXPECT_EQ(qp_a->state(), QpState::kErr);
  EXPECT_EQ(qp_b->state(), QpState::kErr);
  settle();
  EXPECT_THAT(a.results(*qp_a), SizeIs(1)) << "the program flushes the other one";
  EXPECT_EQ(b_counters.resp_remote_access_errors, 1u);
}

TEST_F(Net, EndsAMessageThatDoesNotFit) {
  connect();
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 2000, b_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3000, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kRemoteInvalidRequest));
  ASSERT_THAT(b.received(*qp_b), SizeIs(1));
  EXPECT_EQ(b.received(*qp_b)[0].status, static_cast<uint8_t>(WcStatus::kLocalLengthError));
}

TEST_F(Net, FailsWithMemoryThatIsNotThere) {
  connect();
  const uint32_t gone = a.register_memory(4096, 4096, kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{4096, 100, gone}}));
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kLocalProtectionError));
}

TEST_F(Net, FailsWithMemoryThatIsNotThereAtThePeer) {
  connect();
  const uint32_t gone = b.register_memory(4096, 4096, kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaRead, 4096, gone), {{kBase, 100, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kRemoteAccessError));
}

// b has a window of its memory, to be bound.
struct NetWindows : Net {
  rdma::Mw* window = nullptr;
  ipc::SendWqe bind = wqe_of(Opcode::kBindWindow);
  uint32_t key = 0;
  NetWindows() {
    auto region = std::make_unique<rdma::Mr>();
    region->key = b.context.take_key({region.get(), nullptr});
    region->pd = b.pd;
    region->region.pd = b.pd->handle;
    region->region.access = kAllAccess | verbs::kMwBind;
    region->region.addr = region->region.iova = kBase;
    region->region.length = 4096;
    region->region.way = ipc::Way::kInPlace;
    const rdma::Mr& mr = *b.context.mrs.add(std::move(region));
    auto made = std::make_unique<rdma::Mw>();
    made->key = b.context.take_key({nullptr, made.get()});
    made->type_2 = true;
    made->pd = b.pd;
    window = b.context.mws.add(std::move(made));
    key = (window->key & ~0xffu) | ((window->key + 1) & 0xff);
    bind.bind = {kBase, 64, mr.handle, verbs::kRemoteWrite, window->handle, key};
  }
};

// Requests that change keys wait for those before them, and the peer's key is invalidated with the
// message.
TEST_F(NetWindows, ChangeKeysInOrder) {
  connect();
  ASSERT_TRUE(b.post_send(*qp_b, remote(Opcode::kRdmaWrite, kBase, a_key), {{kBase, 5000, b_key}}));
  ASSERT_TRUE(b.post_send(*qp_b, bind, {}));
  EXPECT_THAT(statuses(*qp_b, 2), Each(WcStatus::kSuccess));

  std::memcpy(a.memory(kBase + 8192), "window", 6);
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {}));
  ASSERT_TRUE(
      a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, key), {{kBase + 8192, 6, a_key}}));
  ipc::SendWqe invalidates = wqe_of(Opcode::kSendWithInvalidate);
  invalidates.imm = key;
  ASSERT_TRUE(a.post_send(*qp_a, invalidates, {}));
  EXPECT_THAT(statuses(*qp_a, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(b.memory(), "window", 6), 0);
  ASSERT_THAT(b.received(*qp_b), SizeIs(1));
  EXPECT_EQ(b.received(*qp_b)[0].imm, key);
  ASSERT_TRUE(
      a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, key), {{kBase + 8192, 6, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 3).back(), WcStatus::kRemoteAccessError);
}

// The program unbinds its window while a thread stores the message that invalidates it.
TEST_F(NetWindows, MayGoBeforeTheMessageThatInvalidatesThemIsStored) {
  connect();
  ASSERT_TRUE(b.post_send(*qp_b, bind, {}));
  EXPECT_THAT(statuses(*qp_b, 1), Each(WcStatus::kSuccess));
  rdma::Reach& reach = *b.context.process->reach();
  std::unique_lock page(*reach.memory()->changes);
  alignas(8) uint64_t word = 0;
  rdma::Reach::Job hangs;
  hangs.parts.push_back({reinterpret_cast<uint64_t>(&word), sizeof word, 0});
  hangs.buffer = std::make_shared<std::vector<uint8_t>>(sizeof word);
  hangs.change = [](uint64_t old) { return old; };
  hangs.done = [](bool) {};
  reach.submit(std::move(hangs));
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{at(b_own), 100, b_own_key}}));
  ipc::SendWqe invalidates = wqe_of(Opcode::kSendWithInvalidate);
  invalidates.imm = key;
  ASSERT_TRUE(a.post_send(*qp_a, invalidates, {{kBase, 100, a_key}}));
  ASSERT_TRUE(wait_for([&] { return qp_b->block->arriving.load() == 1; }));
  rdma::unbind_window(b.context, *window);
  page.unlock();
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  ASSERT_THAT(b.received(*qp_b), SizeIs(1));
  EXPECT_EQ(b.received(*qp_b)[0].imm, key);
}

TEST_F(Net, LeavesWhatIsOnItsWayToTheProgramWhenItFails) {
  connect();
  loss = 1;
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(
        a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 100, a_key}}));
  settle();
  EXPECT_FALSE(qp_a->sender->drained());
  EXPECT_FALSE(qp_a->sender->may_begin_anew());
  qp_a->fail();
  EXPECT_TRUE(qp_a->sender->drained());
  EXPECT_EQ(token(*qp_a), ipc::Token::kFree);
  EXPECT_THAT(a.results(*qp_a), IsEmpty());
}

TEST_F(Net, EndsWhatItHasBegunWhenItIsDrained) {
  connect();
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 100, b_key}}));
  ASSERT_TRUE(b.post_receive(*qp_b, 2, {{kBase, 100, b_key}}));
  loss = 1;
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key}}));
  settle();
  qp_a->set_state(QpState::kSqd);
  qp_a->sender->link_changed();
  loss = 0;
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  settle();
  EXPECT_THAT(a.results(*qp_a), SizeIs(1));
  qp_a->set_state(QpState::kRts);
  qp_a->sender->link_changed();
  EXPECT_THAT(statuses(*qp_a, 2), Each(WcStatus::kSuccess));
}

TEST_F(Net, GoesOnWhenThePortHasRoomAgain) {
  connect();
  refuse = 3;
  ASSERT_TRUE(
      a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 200'000, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(refuse, 0);
}

// The rest of a burst that the port has begun to send goes out later: an unreliable message is
// whole.
TEST_F(Net, SendsEachPacketOfABurstOnce) {
  test::Party::QpOptions uc;
  uc.type = verbs::QpType::kUc;
  connect(uc, uc);
  refuse = 5;
  std::memcpy(a.memory(), pattern(50'000).data(), 50'000);
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 50'000, b_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 50'000, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  settle();
  EXPECT_EQ(refuse, 0);
  EXPECT_EQ(packets, 49u);
  EXPECT_EQ(std::memcmp(b.memory(), pattern(50'000).data(), 50'000), 0);
}

// What is marked reaches the peer; the sender hears of it, and sends more slowly.
TEST_F(Net, SlowsDownWhenItsPacketsAreMarked) {
  connect();
  marks = 1;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 200'000, a_key}}));
    EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
    settle();
  }
  EXPECT_GT(b_counters.np_ecn_marked_roce_packets, 3u);
  EXPECT_GE(b_counters.np_cnp_sent, 3u);
  EXPECT_EQ(a_counters.rp_cnp_handled, b_counters.np_cnp_sent);
  EXPECT_GT(sender(qp_a).congestion().rate(), 0);
  EXPECT_EQ(sender(qp_b).congestion().rate(), 0);
}

// The rate allows the next packet just after it was found not to.
TEST_F(Net, GoesOnWhenTheRateAllowsItMeanwhile) {
  connect();
  const wire::Packet notification = wire::make_cnp(qp_a->qpn);
  sender(qp_a).receive(notification, false, base::Clock::steady().now());
  EXPECT_GT(sender(qp_a).congestion().rate(), 0);
  ahead = std::chrono::milliseconds(50);
  ASSERT_TRUE(
      a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 20'000, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 1), Each(WcStatus::kSuccess));
  ahead = {};
}

TEST_F(Net, HeedsNoMarkOfAPacketThatIsNotItsTurn) {
  connect();
  wire::Packet forged{};
  forged.operation = wire::Operation::kSendOnly;
  forged.pkey = 0xffff;
  forged.dest_qpn = qp_b->qpn;
  const std::vector<uint8_t> payload(8);
  forged.payload = payload.data();
  forged.payload_length = 8;
  forged.psn = wire::psn_add(sender(qp_b).responder().record().next_psn, 1u << 20);
  sender(qp_b).receive(forged, true, base::Clock::steady().now());
  EXPECT_EQ(b_counters.np_ecn_marked_roce_packets, 0u);
  forged.psn = sender(qp_b).responder().record().next_psn;
  sender(qp_b).receive(forged, true, base::Clock::steady().now());
  EXPECT_EQ(b_counters.np_ecn_marked_roce_packets, 1u);
}

TEST_F(Net, LosesNothingOverALossyNetwork) {
  connect();
  loss = 0.03;
  uint32_t posted = 0, receives = 0;
  constexpr uint32_t kCount = 100;
  while (posted < kCount) {
    while (receives < kCount / 2 &&
           b.post_receive(*qp_b, receives, {{kBase + (1u << 20), 20'000, b_key}}))
      ++receives;
    ring(*qp_b);
    while (posted < 2 * receives && posted - qp_a->block->sq_tail < qp_a->sq_depth) {
      const uint32_t length = 100 * posted % 20'000;
      const bool sends = posted % 2 == 0;
      ASSERT_TRUE(a.post_send(
          *qp_a, sends ? wqe_of(Opcode::kSend) : remote(Opcode::kRdmaRead, kBase, b_key),
          {{kBase, length, a_key}}));
      ++posted;
    }
    ASSERT_TRUE(wait_for([&] { return posted - qp_a->block->sq_tail < qp_a->sq_depth / 2; }));
  }
  EXPECT_TRUE(wait_for([&] { return qp_a->block->sq_tail == kCount; }));
  EXPECT_THAT(statuses(*qp_a, qp_a->sq_depth), Each(WcStatus::kSuccess));
  EXPECT_EQ(qp_b->inbox->head, kCount / 2);
  EXPECT_GT(a_counters.retransmitted, 0u);
}

TEST_F(Net, GivesUpOnAPeerThatIsGone) {
  connect();
  const auto write = [&] {
    return a.post_send(*qp_a, remote(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 100, a_key}});
  };
  qp_a->attributes.timeout = 31;  // hours
  qp_a->sender->attributes_changed();
  ASSERT_TRUE(write());
  EXPECT_THAT(statuses(*qp_a, 1), ElementsAre(WcStatus::kSuccess));
  qp_a->attributes.timeout = 1;
  qp_a->attributes.retry_cnt = 1;
  qp_a->sender->attributes_changed();
  loss = 1;
  ASSERT_TRUE(write());
  EXPECT_THAT(statuses(*qp_a, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kRetryExceeded));
}

TEST_F(Net, DropsWhatIsNotForItsConnection) {
  connect();
  wire::Packet packet;
  packet.operation = wire::Operation::kWriteOnly;
  packet.psn = qp_b->attributes.rq_psn;
  packet.service = wire::Service::kUc;
  sender(qp_b).receive(packet, false, base::Clock::steady().now());
  packet.service = wire::Service::kRc;
  packet.pkey = 0x8001;
  sender(qp_b).receive(packet, false, base::Clock::steady().now());
  packet.pkey = 0xffff;
  qp_b->fail();
  sender(qp_b).receive(packet, false, base::Clock::steady().now());
  settle();
  EXPECT_EQ(b_counters.bad_service, 1u);
  EXPECT_EQ(b_counters.bad_pkey, 1u);
  EXPECT_EQ(b_counters.bad_state, 1u);
  EXPECT_EQ(packets, 0u) << "nothing is answered";
}

struct NetUnreliable : Net {};

TEST_F(NetUnreliable, SendsAndRefusesWhatItDoesNotHave) {
  test::Party::QpOptions uc;
  uc.type = verbs::QpType::kUc;
  connect(uc, uc);
  ASSERT_TRUE(b.post_receive(*qp_b, 1, {{kBase, 4000, b_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, wqe_of(Opcode::kSend), {{kBase, 3000, a_key}}));
  ASSERT_TRUE(a.post_send(*qp_a, remote(Opcode::kRdmaRead, kBase, b_key), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*qp_a, 2),
              ElementsAre(WcStatus::kSuccess, WcStatus::kLocalQpOperationError));
  EXPECT_EQ(qp_a->state(), QpState::kSqe);
  settle();
  EXPECT_THAT(b.received(*qp_b), SizeIs(1));
}

// --- UD ---

struct NetDatagrams : Net {
  rdma::Qp* from = add_datagrams(a);
  rdma::Qp* to = add_datagrams(b);
  wire::Packet last;
  NetDatagrams() {
    world.fabric.remove(&world.b_device);  // it is on another host
    from->sender = std::make_unique<DatagramSender>(
        *from, a_lane,
        [this](const rdma::Qp& qp, const rdma::WorkRequest& request, const NetworkHeader& way,
               std::span<const uint8_t> payload) {
          const wire::Packet packet = datagram_of(qp, request, payload, 7);
          std::vector<uint8_t> frame(wire::packet_bytes(packet));
          const size_t headers = wire::encode(packet, frame.data());
          if (packet.payload_length > 0)
            std::memcpy(&frame[headers], packet.payload, packet.payload_length);
          last = wire::decode(frame).value();
          (void)receive_datagram(*to, last, way, b_counters);
          return true;
        });
  }
};

TEST_F(NetDatagrams, ArriveBehindTheirNetworkHeader) {
  ASSERT_TRUE(b.post_receive(*to, 1, {{kBase, 200, b_key}}));
  std::memcpy(a.memory(), "hello", 5);
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{kBase, 5, a_key}}));
  EXPECT_THAT(statuses(*from, 1), ElementsAre(WcStatus::kSuccess));
  ASSERT_THAT(b.received(*to), SizeIs(1));
  const ipc::RecvEntry entry = b.received(*to)[0];
  EXPECT_EQ(entry.byte_len, 45u);
  EXPECT_EQ(entry.src_qpn, from->qpn);
  EXPECT_EQ(entry.flags & ipc::kRecvGrh, ipc::kRecvGrh);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 40), "hello", 5), 0);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 8), test::gid_of("fe80::a").bytes.data(), 16), 0);
  EXPECT_EQ(last.service, wire::Service::kUd);
  EXPECT_EQ(last.qkey, kQkey);
}

TEST_F(NetDatagrams, AreDroppedWithoutAReceiveOrTheRightKey) {
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{kBase, 5, a_key}}));
  EXPECT_THAT(statuses(*from, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(b_counters.out_of_buffer, 1u);
  ASSERT_TRUE(b.post_receive(*to, 1, {{kBase, 200, b_key}}));
  to->attributes.qkey = 5;
  ASSERT_TRUE(a.post_send(*from, datagram_to("fe80::b", to->qpn), {{kBase, 5, a_key}}));
  EXPECT_THAT(statuses(*from, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(b_counters.bad_qkey, 1u);
  EXPECT_THAT(b.received(*to), IsEmpty());
}

}  // namespace
}  // namespace vrdma::transport::net
