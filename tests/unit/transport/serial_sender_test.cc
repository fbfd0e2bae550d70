#include "transport/serial_sender.h"

#include <random>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using ipc::Token;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct SendQueues : Rig {
  World::Pair pair = world.connected();

  ipc::SendWqe write() const { return rdma_wqe(Opcode::kRdmaWrite, kBase, b_key); }
  bool post(const ipc::SendWqe& wqe, uint32_t length = 8) {
    return a.post_send(*pair.a, wqe, {{kBase, length, a_key}});
  }
  bool post_receive(uint64_t id = 0) { return b.post_receive(*pair.b, id, {{kBase, 4096, b_key}}); }
  SerialSender& queue() { return static_cast<SerialSender&>(*pair.a->sender); }
};

TEST_F(SendQueues, ExecuteInOrderAndLetGo) {
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(wait_for([&] { return token(*pair.a) == Token::kFree; }));
    for (uint64_t k = 0; k < 4; ++k) ASSERT_TRUE(post(write()));
  }
  ASSERT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 160; }));
  EXPECT_THAT(statuses(*pair.a, 16), Each(WcStatus::kSuccess));
  EXPECT_TRUE(wait_for([&] { return token(*pair.a) == Token::kFree; }));
  EXPECT_EQ(pair.a->block->blocked, 0u);
}

TEST_F(SendQueues, WrapTheirIndicesAround) {
  pair.a->block->sq_head = pair.a->block->sq_tail = ~0u - 2;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(post(write()));
  EXPECT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 3; }));
}

TEST_F(SendQueues, DoNothingWithoutTheToken) {
  for (const Token token : {Token::kFree, Token::kClient}) {
    pair.a->block->token = static_cast<uint32_t>(token);
    ASSERT_TRUE(post(write()));
    pair.a->block->token = static_cast<uint32_t>(token);
    queue().kick();
    settle();
    EXPECT_EQ(pair.a->block->sq_tail, 0u);
  }
  pair.a->block->token = 0xdead;  // no state at all
  queue().kick();
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  pair.a->block->token = static_cast<uint32_t>(Token::kWorker);
  queue().kick();
  EXPECT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 2; }));
}

TEST_F(SendQueues, DoNotGiveWhatIsNotDirect) {
  ASSERT_TRUE(post(write()));
  pair.a->block->token = static_cast<uint32_t>(Token::kAsked);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_TRUE(wait_for([&] { return token(*pair.a) == Token::kFree; }));
}

TEST_F(SendQueues, SurviveATokenThatIsScribbledOn) {
  std::minstd_rand random(3);
  ASSERT_TRUE(wait_for([&] {
    pair.a->block->token = static_cast<uint32_t>(random() % 5);
    (void)post(write());
    queue().kick();
    return pair.a->block->sq_tail > 500;
  }));
  EXPECT_EQ(a.corrupt, 0);
}

TEST_F(SendQueues, WaitForAReceive) {
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  ASSERT_TRUE(wait_for([&] { return pair.b->block->rq_waiter == 1; }));
  EXPECT_EQ(pair.a->block->blocked, 1u);
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  ASSERT_TRUE(post_receive(7));
  ring(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(pair.b->block->rq_waiter, 0u);
  EXPECT_EQ(pair.a->block->blocked, 0u);
  EXPECT_THAT(pair.b->waiters, IsEmpty());
  EXPECT_THAT(b.received(*pair.b), SizeIs(1));
}

// A fence for each receiver that is not ready would interrupt all processors as often as one likes.
TEST_F(SendQueues, LookAgainWhereThereMayBeNoFence) {
  a_lane.set_fence_interval(std::chrono::milliseconds(500));  // so that a busy machine sees it too
  (void)a_lane.fence_since(base::Clock::steady().now());      // the interval's
  ASSERT_FALSE(a_lane.fence_since(base::Clock::steady().now()));
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  ASSERT_TRUE(wait_for([&] { return pair.b->block->rq_waiter != 0; }));
  ASSERT_TRUE(b.post_receive(*pair.b, 0, {{kBase, 8, b_key}}));  // its owner does not ring
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
}

TEST_F(SendQueues, GiveUpWithoutAReceiveAtOnce) {
  pair.a->attributes.rnr_retry = 0;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRnrRetryExceeded));
  EXPECT_EQ(pair.a->state(), QpState::kErr);
  EXPECT_EQ(pair.b->state(), QpState::kRts);  // RNR is no error of the responder's
}

TEST_F(SendQueues, CountTheRetriesOfTheResponder) {
  pair.b->attributes.min_rnr_timer = 20;  // 10.24 ms, IBTA table 45
  for (const uint8_t retries : {uint8_t{1}, uint8_t{3}}) {
    const World::Pair fresh = world.connected();
    fresh.b->attributes.min_rnr_timer = 20;
    fresh.a->attributes.rnr_retry = retries;
    const auto begin = base::Clock::steady().now();
    ASSERT_TRUE(a.post_send(*fresh.a, wqe_of(Opcode::kSend), {}));
    EXPECT_THAT(statuses(*fresh.a, 1), ElementsAre(WcStatus::kRnrRetryExceeded));
    EXPECT_GE(base::Clock::steady().now() - begin, std::chrono::microseconds(10240) * retries);
  }
}

TEST_F(SendQueues, BeginToCountAnewForEachRequest) {
  pair.b->attributes.min_rnr_timer = 18;  // 5.12 ms
  pair.a->attributes.rnr_retry = 6;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  settle(7);  // at least one retry is spent
  ASSERT_TRUE(post_receive());
  const auto begin = base::Clock::steady().now();
  ring(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kRnrRetryExceeded));
  EXPECT_GE(base::Clock::steady().now() - begin, std::chrono::microseconds(5120) * 6);  // all six
}

TEST_F(SendQueues, IgnoreRingsForNothing) {
  pair.a->attributes.rnr_retry = 7;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  for (int i = 0; i < 20; ++i) {
    settle(1);
    ring(*pair.b);
    queue().kick();
  }
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  ASSERT_TRUE(post_receive());
  ring(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
}

TEST_F(SendQueues, TimeOutWithoutALink) {
  world.fabric.cut(*pair.a);
  pair.a->attributes.timeout = 10;  // 4.096 us * 2^10 = 4.2 ms
  pair.a->attributes.retry_cnt = 1;
  const auto begin = base::Clock::steady().now();
  ASSERT_TRUE(post(write()));
  ASSERT_TRUE(post(write()));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRetryExceeded));
  EXPECT_GE(base::Clock::steady().now() - begin, std::chrono::microseconds(8388));
  EXPECT_EQ(pair.a->state(), QpState::kErr);
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 1u);  // the rest is the program's to flush
  EXPECT_EQ(token(*pair.a), Token::kFree);
}

TEST_F(SendQueues, WaitWhileAPortIsDown) {
  size_t done = 0;
  for (rdma::Device* device : {&world.a_device, &world.b_device}) {
    world.fabric.mediate(device, rdma::Mediated::kPortDown, true);
    ASSERT_TRUE(post(write()));
    settle(20);
    EXPECT_EQ(pair.a->block->blocked, 1u);
    EXPECT_EQ(pair.a->block->sq_tail, done);
    world.fabric.mediate(device, rdma::Mediated::kPortDown, false);
    EXPECT_THAT(statuses(*pair.a, ++done), Each(WcStatus::kSuccess));
  }
}

TEST_F(SendQueues, TimeOutAfterThePortWentDown) {
  pair.a->attributes.timeout = 10;
  pair.a->attributes.retry_cnt = 1;
  // It waits for a receive first, with a timer that says nothing about the port.
  pair.a->attributes.rnr_retry = 6;
  pair.b->attributes.min_rnr_timer = 31;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  settle(5);
  EXPECT_EQ(pair.a->block->blocked, 1u);
  const auto begin = base::Clock::steady().now();
  world.fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, true);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRetryExceeded));
  EXPECT_GE(base::Clock::steady().now() - begin, std::chrono::microseconds(8388));
}

TEST_F(SendQueues, WaitForALinkForEver) {
  rdma::Qp* alone = world.add_qp(a, {});
  world.name(*alone, *pair.b);
  alone->attributes.timeout = 0;
  alone->set_state(QpState::kInit);
  world.to_rtr(*alone);
  world.to_rts(*alone);
  ASSERT_TRUE(a.post_send(*alone, wqe_of(Opcode::kSend), {}));
  settle(20);
  EXPECT_EQ(alone->block->sq_tail, 0u);
  EXPECT_EQ(alone->block->blocked, 1u);
  // The peer that it names appears.
  rdma::Qp* peer = world.add_qp(b, {});
  world.name(*peer, *alone);
  alone->attributes.dest_qpn = peer->qpn;
  alone->attributes.rq_psn = peer->qpn;
  ASSERT_TRUE(b.post_receive(*peer, 1, {}));
  peer->set_state(QpState::kInit);
  world.to_rtr(*peer);
  EXPECT_THAT(statuses(*alone, 1), ElementsAre(WcStatus::kSuccess));
}

TEST_F(SendQueues, LoseWhatAnUnreliableConnectionCannotDeliver) {
  test::Party::QpOptions uc;
  uc.type = verbs::QpType::kUc;
  const World::Pair lossy = world.connected(uc, uc);
  ASSERT_TRUE(a.post_send(*lossy.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*lossy.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_THAT(b.received(*lossy.b), IsEmpty());
  world.fabric.cut(*lossy.a);
  ASSERT_TRUE(a.post_send(*lossy.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*lossy.a, 2), Each(WcStatus::kSuccess));
}

TEST_F(SendQueues, StopAnUnreliableQueueWithAnErrorOfItsOwn) {
  test::Party::QpOptions uc;
  uc.type = verbs::QpType::kUc;
  const World::Pair lossy = world.connected(uc, uc);
  ASSERT_TRUE(a.post_send(*lossy.a, write(), {{kBase, 8, 1}}));
  EXPECT_THAT(statuses(*lossy.a, 1), ElementsAre(WcStatus::kLocalProtectionError));
  EXPECT_EQ(lossy.a->state(), QpState::kSqe);  // the send queue, not the queue pair
  EXPECT_EQ(token(*lossy.a), Token::kFree);
  EXPECT_EQ(lossy.b->state(), QpState::kRts);
}

struct BadEntry {
  const char* name;
  std::function<void(rdma::Qp&, ipc::SendWqe*)> spoil;
};

TEST_F(SendQueues, EndASessionWithACorruptRing) {
  const std::vector<BadEntry> all{
      {"head too far", [](rdma::Qp& qp, ipc::SendWqe*) { qp.block->sq_head = qp.sq_depth + 1; }},
      {"head behind", [](rdma::Qp& qp, ipc::SendWqe*) { qp.block->sq_head = ~0u; }},
      {"tail ahead", [](rdma::Qp& qp, ipc::SendWqe*) { qp.block->sq_tail = 2; }},
      {"opcode", [](rdma::Qp&, ipc::SendWqe* wqe) { wqe->opcode = verbs::kOpcodeCount; }},
      {"opcode 255", [](rdma::Qp&, ipc::SendWqe* wqe) { wqe->opcode = 255; }},
      {"elements", [](rdma::Qp&, ipc::SendWqe* wqe) { wqe->num_sge = ipc::kMaxSge + 1; }},
      {"elements 65535", [](rdma::Qp&, ipc::SendWqe* wqe) { wqe->num_sge = 65535; }},
      {"inline",
       [](rdma::Qp&, ipc::SendWqe* wqe) {
         wqe->flags |= ipc::kInline;
         wqe->inline_length = ipc::kMaxInline + 1;
       }},
      {"inline huge",
       [](rdma::Qp&, ipc::SendWqe* wqe) {
         wqe->flags |= ipc::kInline;
         wqe->inline_length = ~0u;
       }},
  };
  int expected = 0;
  for (const auto& [name, spoil] : all) {
    const World::Pair fresh = world.connected();
    const uint64_t counted = world.fabric.counters.rings_corrupt;
    ASSERT_TRUE(a.post_send(*fresh.a, write(), {{kBase, 8, a_key}}));
    spoil(*fresh.a, reinterpret_cast<ipc::SendWqe*>(const_cast<uint8_t*>(fresh.a->sq)));
    ++expected;
    EXPECT_TRUE(wait_for([&] { return a.corrupt >= expected; })) << name;
    settle(2);
    EXPECT_EQ(a.corrupt, expected) << name << ": once";
    EXPECT_EQ(world.fabric.counters.rings_corrupt, counted + 1) << name;
    EXPECT_EQ(fresh.b->state(), QpState::kRts) << name;
    a.context.destroy_qp(*fresh.a);
  }
}

TEST_F(SendQueues, EndTheSessionWhoseReceivesAreCorrupt) {
  ASSERT_TRUE(post_receive());
  pair.b->block->rq_head = 1000;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  EXPECT_TRUE(wait_for([&] { return b.corrupt > 0; }));
  EXPECT_EQ(a.corrupt, 0);
  EXPECT_EQ(pair.a->state(), QpState::kRts);
}

TEST_F(SendQueues, StopInSqd) {
  pair.a->set_state(QpState::kSqd);
  queue().link_changed();
  ASSERT_TRUE(post(write()));
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  pair.a->set_state(QpState::kRts);
  queue().link_changed();
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
}

TEST_F(SendQueues, FinishInSqdWhatWasBegun) {
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  ASSERT_TRUE(post(write()));
  ASSERT_TRUE(wait_for([&] { return pair.a->block->blocked == 1; }));
  pair.a->attributes.sq_draining = 1;
  pair.a->set_state(QpState::kSqd);
  queue().link_changed();
  std::vector<uint32_t> written_down;
  a.context.on_qp_changed = [&](const rdma::Qp& qp, uint32_t) {
    written_down.push_back(qp.attributes.sq_draining);
  };
  ASSERT_TRUE(post_receive());
  ring(*pair.b);
  EXPECT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 1; }));
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 1u);
  a.context.on_qp_changed = nullptr;
  EXPECT_THAT(written_down, ElementsAre(0)) << "or the next daemon says once more that it drained";
}

TEST_F(SendQueues, LetGoWhenTheQueuePairFails) {
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  ASSERT_TRUE(wait_for([&] { return pair.a->block->blocked == 1; }));
  pair.a->fail();
  EXPECT_EQ(token(*pair.a), Token::kFree);  // before anybody is told
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  EXPECT_THAT(pair.b->waiters, IsEmpty());
  EXPECT_EQ(pair.b->block->rq_waiter, 0u);
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
}

TEST_F(SendQueues, ForgetAWaiterWhoIsDestroyedOrReset) {
  for (const bool reset : {false, true}) {
    const World::Pair fresh = world.connected();
    ASSERT_TRUE(a.post_send(*fresh.a, wqe_of(Opcode::kSend), {}));
    ASSERT_TRUE(wait_for([&] { return !fresh.b->waiters.empty(); }));
    if (reset)
      a.context.reset_qp(*fresh.a);
    else
      a.context.destroy_qp(*fresh.a);
    EXPECT_THAT(fresh.b->waiters, IsEmpty());
    ASSERT_TRUE(b.post_receive(*fresh.b, 1, {}));
    ring(*fresh.b);
    settle();
    EXPECT_THAT(b.received(*fresh.b), IsEmpty());
  }
}

TEST_F(SendQueues, WaitForASilentPeerThatWasDestroyed) {
  pair.a->attributes.timeout = 8;
  ASSERT_TRUE(post(wqe_of(Opcode::kSend)));
  ASSERT_TRUE(wait_for([&] { return !pair.b->waiters.empty(); }));
  b.context.destroy_qp(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRetryExceeded));
}

struct TrustingQueues : Rig {
  TrustingQueues() : Rig("red") {}
  World::Pair pair = world.connected();
};

TEST_F(TrustingQueues, GiveTheTokenToWhoAsks) {
  ASSERT_TRUE(pair.a->link.out_direct);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(
        a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 8, a_key}}));
  pair.a->block->token = static_cast<uint32_t>(Token::kAsked);
  EXPECT_TRUE(wait_for([&] { return token(*pair.a) == Token::kClient; }));
  EXPECT_EQ(pair.a->block->sq_tail, 0u);  // between two requests, and none was begun
}

TEST_F(TrustingQueues, DeliverIntoTheOutbox) {
  ASSERT_TRUE(b.post_receive(*pair.b, 9, {{kBase, 100, b_key}}));
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(pair.a->link.outbox->ring->head, 1u);
  EXPECT_EQ(pair.b->inbox->head, 0u);
}

TEST_F(TrustingQueues, EndTheInitiatorForNonsenseInItsOutbox) {
  ASSERT_TRUE(b.post_receive(*pair.b, 9, {{kBase, 100, b_key}}));
  pair.a->link.outbox->ring->head = 1000;
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_TRUE(wait_for([&] { return a.corrupt + b.corrupt > 0; }));
  EXPECT_EQ(a.corrupt, 1);
  EXPECT_EQ(b.corrupt, 0);
}

TEST_F(TrustingQueues, EndTheResponderForNonsenseInItsQueue) {
  pair.b->block->rq_head = 1u << 20;
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_TRUE(wait_for([&] { return a.corrupt + b.corrupt > 0; }));
  EXPECT_EQ(a.corrupt, 0);
  EXPECT_EQ(b.corrupt, 1);
}

}  // namespace
}  // namespace vrdma::transport
