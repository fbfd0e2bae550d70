#include "core/rdma/device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/rdma/xrc.h"
#include "tests/unit/core/base/unpredictable.h"
#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using test::Party;
using test::World;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Handles, StartAtOneAndAreReused) {
  Handles<Pd> handles;
  EXPECT_EQ(handles.find(0), nullptr);
  EXPECT_EQ(handles.find(1), nullptr);
  Pd* first = handles.add(std::make_unique<Pd>());
  Pd* second = handles.add(std::make_unique<Pd>());
  EXPECT_EQ(first->handle, 1u);
  EXPECT_EQ(second->handle, 2u);
  EXPECT_EQ(handles.find(2), second);
  EXPECT_EQ(handles.find(3), nullptr);
  EXPECT_EQ(handles.find(~0u), nullptr);
  handles.remove(1);
  EXPECT_EQ(handles.find(1), nullptr);
  EXPECT_EQ(handles.count(), 1u);
  EXPECT_EQ(handles.add(std::make_unique<Pd>())->handle, 1u);
  EXPECT_EQ(handles.capacity(), 2u);
  int seen = 0;
  handles.each([&](const Pd&) { ++seen; });
  EXPECT_EQ(seen, 2);
}

struct Devices : testing::Test {
  World world;
  Party& a = *world.a;
  Party& b = *world.b;
  static void arm(const Cq& cq, ipc::Arm how) { cq.bell->arm.store(ipc::arm_word(how)); }
};

TEST_F(Devices, WakeWhoHasArmed) {
  Cq* cq = a.add_cq();
  cq->notify(true);
  EXPECT_THAT(a.wakes(), IsEmpty());
  arm(*cq, ipc::Arm::kNext);
  cq->notify(false);
  cq->notify(false);  // once
  const auto wakes = a.wakes();
  ASSERT_THAT(wakes, SizeIs(1));
  EXPECT_EQ(wakes[0].cq, cq->slot);
  arm(*cq, ipc::Arm::kSolicited);
  cq->notify(false);
  EXPECT_THAT(a.wakes(), IsEmpty());
  cq->notify(true);
  EXPECT_THAT(a.wakes(), SizeIs(1));
  EXPECT_EQ(cq->bell->arm.load(), ipc::arm_word(ipc::Arm::kNone));
  cq->bell->arm.store(0xdeadbeef);  // anyone may write there
  cq->notify(true);
  EXPECT_THAT(a.wakes(), IsEmpty());
}

TEST_F(Devices, TellWhatADeadProgramBeganToTell) {
  Cq* cq = a.add_cq();
  cq->bell->arm.store(ipc::arm_word(ipc::Arm::kTelling, ipc::kProgram));
  cq->notify(true);
  EXPECT_THAT(a.wakes(), IsEmpty());
  cq->notify_untold(5);
  EXPECT_THAT(a.wakes(), SizeIs(1));
  EXPECT_EQ(cq->bell->arm.load(), ipc::arm_word(ipc::Arm::kNone));
  constexpr uint32_t kAnotherDaemon = 7;  // whose workers are looked after elsewhere
  cq->bell->arm.store(ipc::arm_word(ipc::Arm::kTelling, kAnotherDaemon));
  cq->notify_untold(5);
  EXPECT_THAT(a.wakes(), IsEmpty());
}

TEST_F(Devices, SayThatTheyAreAboutToTell) {
  a.context.epoch = 7;
  Qp* qps[] = {a.add_qp(), a.add_qp()};
  qps[1]->recv_cq = qps[0]->recv_cq;
  const ipc::Word& untold = qps[0]->recv_cq->bell->untold;
  for (Qp* qp : qps) {
    qp->publish({});
    EXPECT_EQ(untold.load(), 7);
  }
  qps[1]->tell({});
  EXPECT_EQ(untold.load(), 7) << "one is still untold";
  qps[0]->tell({});
  EXPECT_EQ(untold.load(), 0);
}

TEST_F(Devices, DoNotWaitForAPipeThatIsFull) {
  Cq* cq = a.add_cq();
  for (int i = 0; i < 20'000; ++i) {
    arm(*cq, ipc::Arm::kNext);
    cq->notify(true);
    a.context.raise(verbs::Event::kPortError, 1);
  }
  EXPECT_FALSE(a.wakes().empty());
  EXPECT_FALSE(a.events().empty());
}

TEST_F(Devices, NumberTheirQueuePairsWithoutSpecialOnes) {
  for (const uint32_t special : {0u, 1u, verbs::kMulticastQpn})
    EXPECT_TRUE(is_special_qpn(special));
  EXPECT_FALSE(is_special_qpn(2));
  EXPECT_FALSE(is_special_qpn(verbs::kMulticastQpn - 1));
  Device& device = world.a_device;
  Qp qp;
  std::set<uint32_t> taken;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t qpn = device.take_qpn(&qp);
    EXPECT_FALSE(is_special_qpn(qpn));
    EXPECT_TRUE(taken.insert(qpn).second);
    EXPECT_FALSE(device.take_qpn(&qp, qpn));
  }
}

TEST_F(Devices, NumberTheirQueuePairsUnpredictably) {
  std::vector<uint32_t> numbers, others;
  Qp qp;
  for (int i = 0; i < test::kSample; ++i) {
    numbers.push_back(world.a_device.take_qpn(&qp));
    others.push_back(world.b_device.take_qpn(&qp));
  }
  test::expect_unpredictable(numbers, others, 24);
  test::expect_even_bits(numbers, 0, 23);
}

TEST_F(Devices, NumberTheirSrqsUnpredictably) {
  std::vector<uint32_t> numbers, others;
  XrcDomain one, other;
  std::vector<Srq> srqs(2 * test::kSample);
  for (size_t i = 0; i < srqs.size(); ++i) {
    (i % 2 == 0 ? one : other).add(srqs[i]);
    (i % 2 == 0 ? numbers : others).push_back(srqs[i].srqn);
  }
  test::expect_unpredictable(numbers, others, 24);
  test::expect_even_bits(numbers, 0, 23);
}

TEST_F(Devices, KnowTheMtuThatFits) {
  Device& device = world.a_device;
  for (const auto& [mtu, roce] : {std::pair{0u, 256u},
                                  {576u, 256u},
                                  {1500u, 1024u},
                                  {4200u, 4096u},
                                  {4191u, 2048u},
                                  {4192u, 4096u},
                                  {9000u, 4096u},
                                  {65535u, 4096u}}) {
    device.mtu = mtu;
    EXPECT_EQ(device.roce_mtu(), roce) << mtu;
  }
}

TEST_F(Devices, DeliverAndWake) {
  Qp* qp = a.add_qp();
  arm(*qp->recv_cq, ipc::Arm::kSolicited);
  ipc::RecvEntry entry{};
  entry.byte_len = 5;
  qp->deliver(entry);
  EXPECT_THAT(a.wakes(), IsEmpty());
  entry.status = static_cast<uint8_t>(verbs::WcStatus::kLocalLengthError);  // errors are solicited
  qp->deliver(entry);
  EXPECT_THAT(a.wakes(), SizeIs(1));
  const auto entries = a.received(*qp);
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].byte_len, 5u);
}

// A CQ is told if something is outstanding, which the program then flushes.
TEST_F(Devices, FailAndTellWhereSomethingStands) {
  for (const bool sends : {false, true})
    for (const bool receives : {false, true}) {
      const auto pair = world.connected();
      arm(*pair.a->send_cq, ipc::Arm::kNext);
      arm(*pair.a->recv_cq, ipc::Arm::kNext);
      if (sends) pair.a->block->sq_head.store(1);
      if (receives) pair.a->block->rq_head.store(1);
      pair.a->fail();
      EXPECT_THAT(a.wakes(), SizeIs((sends ? 1 : 0) + (receives ? 1 : 0)));
    }
}

// Before the last arrival nothing can be polled.
TEST_F(Devices, TellWhenTheLastArrivalHasEnded) {
  const auto pair = world.connected();
  arm(*pair.a->recv_cq, ipc::Arm::kNext);
  pair.a->block->rq_head.store(1);
  auto arrival = pair.a->arrival();
  pair.a->fail();
  EXPECT_THAT(a.wakes(), IsEmpty());
  arrival.reset();
  EXPECT_THAT(a.wakes(), SizeIs(1));
}

TEST_F(Devices, FailOnceAndTellBothQueues) {
  const auto pair = world.connected();
  pair.a->block->sq_head.store(1);
  pair.a->block->rq_head.store(1);
  arm(*pair.a->send_cq, ipc::Arm::kNext);
  arm(*pair.a->recv_cq, ipc::Arm::kNext);
  pair.a->fail();
  EXPECT_EQ(pair.a->block->state, static_cast<uint32_t>(verbs::QpState::kErr));
  EXPECT_THAT(a.wakes(), SizeIs(2));
  EXPECT_EQ(pair.a->link.out, nullptr);
  EXPECT_EQ(pair.b->link.out, nullptr);
  EXPECT_EQ(pair.b->state(), verbs::QpState::kRts);
  arm(*pair.a->send_cq, ipc::Arm::kNext);
  pair.a->fail();
  EXPECT_THAT(a.wakes(), IsEmpty());
}

TEST_F(Devices, TellTheLastReceiveOfASharedQueue) {
  Party::QpOptions shared;
  shared.srq = a.add_srq(4);
  Qp* qp = a.add_qp(shared);
  qp->fail();
  const auto events = a.events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].event, static_cast<uint32_t>(verbs::Event::kQpLastWqeReached));
}

TEST_F(Devices, ResetToTheBeginning) {
  const auto pair = world.connected();
  pair.a->block->sq_head = 5;
  pair.a->block->sq_tail = 5;
  pair.a->block->rq_head = 3;
  pair.a->inbox_head = 2;
  a.context.reset_qp(*pair.a);
  EXPECT_EQ(pair.a->state(), verbs::QpState::kReset);
  EXPECT_EQ(pair.a->block->sq_head, 0u);
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  EXPECT_EQ(pair.a->block->rq_head, 0u);
  EXPECT_EQ(pair.a->inbox_head, 0u);
  EXPECT_EQ(pair.a->block->token, static_cast<uint32_t>(ipc::Token::kFree));
  EXPECT_EQ(pair.a->block->link, static_cast<uint32_t>(ipc::Link::kNone));
  EXPECT_EQ(pair.b->link.in, nullptr);
  EXPECT_EQ(pair.b->link.out, nullptr);
}

TEST_F(Devices, DestroyWhatDependsOnThem) {
  const auto pair = world.connected();
  const uint32_t qpn = pair.a->qpn;
  Cq* cq = pair.a->send_cq;
  EXPECT_EQ(cq->users, 1u);
  a.context.destroy_qp(*pair.a);
  EXPECT_EQ(cq->users, 0u);
  EXPECT_EQ(a.pd->users, 0u);
  EXPECT_EQ(world.fabric.find(world.a_device.gids[0], qpn), nullptr);
  EXPECT_EQ(pair.b->link.out, nullptr);
  world.b.reset();  // a context with a living queue pair
  EXPECT_TRUE(world.b_device.qps.empty());
  EXPECT_THAT(world.b_device.contexts, IsEmpty());
}

}  // namespace
}  // namespace vrdma::rdma
