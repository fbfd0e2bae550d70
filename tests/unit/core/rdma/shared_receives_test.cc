#include "core/rdma/shared_receives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "core/rdma/device.h"
#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using verbs::Event;

constexpr uint32_t kLink = ipc::kFirstLink;

struct SharedQueue : testing::Test {
  test::World world{"red"};
  test::Party& owner = *world.b;
  Srq* srq = owner.add_srq(8);
  const SharedReceives& queue = srq->receives;

  void post(uint32_t slot) { ASSERT_TRUE(owner.post_receive(*srq, slot, {})); }
  // The slots that can be claimed now, in order.
  std::vector<uint32_t> claim_all() {
    std::vector<uint32_t> slots;
    for (Receive receive; srq->claim(&receive) == Outcome::kDone;) slots.push_back(receive.slot);
    return slots;
  }
  int limit_events() {
    int count = 0;
    for (const auto& event : owner.events())
      if (event.event == static_cast<uint32_t>(Event::kSrqLimitReached)) ++count;
    return count;
  }
};

TEST_F(SharedQueue, GivesOutInTheOrderPosted) {
  for (const uint32_t slot : {5u, 2u, 7u}) post(slot);
  EXPECT_EQ(count_waiting(queue), 3u);
  EXPECT_THAT(claim_all(), ElementsAre(5, 2, 7));
  EXPECT_EQ(count_waiting(queue), 0u);
}

TEST_F(SharedQueue, WrapsAround) {
  for (uint32_t i = 0; i < 2000; ++i) {
    post(i % 3);
    post(3 + i % 5);
    EXPECT_THAT(claim_all(), ElementsAre(i % 3, 3 + i % 5));
  }
}

TEST_F(SharedQueue, LetsOneOfTwoClaimersHaveIt) {
  post(4);
  Candidate first, second;
  ASSERT_EQ(find_receive(queue, &first), Outcome::kDone);
  ASSERT_EQ(find_receive(queue, &second), Outcome::kDone);
  EXPECT_TRUE(claim(queue, first, ipc::claimed_by(kLink, 0)));
  EXPECT_FALSE(claim(queue, second, ipc::kClaimedByWorker));
  EXPECT_EQ(find_receive(queue, &second), Outcome::kNoReceive);
}

// What a claimer copied is what it claims, or it claims nothing.
TEST_F(SharedQueue, RefusesAClaimOfWhatWasPostedAnew) {
  post(4);
  Candidate late;
  ASSERT_EQ(find_receive(queue, &late), Outcome::kDone);
  ASSERT_THAT(claim_all(), ElementsAre(4));
  post(4);
  EXPECT_FALSE(claim(queue, late, ipc::kClaimedByWorker));
  EXPECT_THAT(claim_all(), ElementsAre(4));
}

TEST_F(SharedQueue, GivesWhatWasGivenBackFirst) {
  for (const uint32_t slot : {1u, 2u, 3u}) post(slot);
  Receive receive;
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  srq->give_back(2);
  srq->give_back(1);
  EXPECT_EQ(count_waiting(queue), 3u);
  EXPECT_THAT(claim_all(), ElementsAre(2, 1, 3));
}

TEST_F(SharedQueue, WakesASenderWhenAReceiveIsGivenBack) {
  struct WaitingSender final : Sender {
    void kick() override {}
    void link_changed() override {}
    void receive_posted() override { ++posted; }
    bool drained() const override { return true; }
    int posted = 0;
  } sender;
  srq->waiters.push_back(&sender);
  post(1);
  Receive receive;
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  srq->give_back(receive.slot);
  EXPECT_EQ(sender.posted, 1);
  srq->waiters.clear();
}

TEST_F(SharedQueue, GetsBackWhatADeadDaemonHadHalfGivenBack) {
  post(2);
  ASSERT_THAT(claim_all(), ElementsAre(2));
  EXPECT_FALSE(srq->is_half_returned(2));
  queue.claims->words()[2].store(ipc::kReturned | srq->returned_head);
  EXPECT_TRUE(srq->is_half_returned(2));
  srq->give_back(2);
  EXPECT_FALSE(srq->is_half_returned(2));
  EXPECT_THAT(claim_all(), ElementsAre(2));
}

// However long a receive was held, and however often others went round meanwhile.
TEST_F(SharedQueue, GetsBackWhatWasHeldLong) {
  post(0);
  Receive held;
  ASSERT_EQ(srq->claim(&held), Outcome::kDone);
  for (int i = 0; i < 2000; ++i) {
    post(1);
    ASSERT_THAT(claim_all(), ElementsAre(1));
  }
  srq->give_back(held.slot);
  EXPECT_THAT(claim_all(), ElementsAre(0));
}

TEST_F(SharedQueue, FindsReceivesBehindWrongHints) {
  for (const uint32_t nonsense : {8u, 2000u, 1u << 31}) {
    post(3);
    post(6);
    queue.claims->hint.store(srq->block->head.load() + nonsense);
    queue.claims->returned_hint.store(nonsense);
    EXPECT_THAT(claim_all(), testing::UnorderedElementsAre(3, 6)) << nonsense;
  }
}

TEST_F(SharedQueue, RefusesImpossibleEntries) {
  post(3);
  const_cast<uint32_t*>(queue.posted())[0] = srq->depth;
  Receive receive;
  EXPECT_EQ(srq->claim(&receive), Outcome::kPeerBroken);
  const_cast<uint32_t*>(queue.posted())[0] = 3;
  const ipc::RecvWqe wqe{1, srq->max_sge + 1, 0};
  std::memcpy(const_cast<uint8_t*>(queue.wqes) + 3 * ipc::recv_stride(srq->max_sge), &wqe,
              sizeof wqe);
  EXPECT_EQ(srq->claim(&receive), Outcome::kPeerBroken);
}

TEST_F(SharedQueue, TellsOnceWhenFewAreLeft) {
  for (uint32_t slot = 0; slot < 4; ++slot) post(slot);
  srq->set_limit(3);
  Receive receive;
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  EXPECT_EQ(limit_events(), 0);
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  EXPECT_EQ(limit_events(), 1);
  EXPECT_EQ(srq->block->limit.load(), 0u);
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  EXPECT_EQ(limit_events(), 0);
  srq->set_limit(2);
  EXPECT_EQ(limit_events(), 0) << "fewer than that are left already: at the next claim";
  ASSERT_EQ(srq->claim(&receive), Outcome::kDone);
  EXPECT_EQ(limit_events(), 1);
}

// Many initiators, and an owner that posts again what was completed: each posting is claimed once.
TEST_F(SharedQueue, GivesEachReceiveToOneOfManyThreads) {
  constexpr int kThreads = 3, kRounds = 3000;
  std::atomic<int> claimed = 0;
  std::atomic<bool> over = false;
  std::array<std::atomic<int>, 8> held{};  // by slot: claimed and not given to the owner
  std::vector<std::thread> threads;
  for (uint32_t slot = 0; slot < 8; ++slot) post(slot);
  for (uint32_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Candidate candidate;
      for (uint32_t index = 0; !over;) {
        if (find_receive(queue, &candidate) != Outcome::kDone) {
          std::this_thread::yield();
          continue;
        }
        if (!claim(queue, candidate, ipc::claimed_by(kLink + t, index))) continue;
        ++index;
        ++claimed;
        EXPECT_EQ(held[candidate.receive.slot].exchange(1), 0);
      }
    });
  int posted = 8;
  const uint32_t mask = srq->depth - 1;
  while (posted < kRounds) {
    for (uint32_t slot = 0; slot < 8; ++slot) {
      int one = 1;
      if (!held[slot].compare_exchange_strong(one, 0)) continue;
      // The WQE stays as it is, so that only words of the protocol are written here.
      const uint32_t head = srq->block->head.load(std::memory_order_relaxed);
      __atomic_store_n(const_cast<uint32_t*>(&queue.posted()[head & mask]), slot, __ATOMIC_RELAXED);
      queue.claims->words()[slot].store(head + 1, std::memory_order_release);
      srq->block->head.store(head + 1, std::memory_order_release);
      ++posted;
    }
    std::this_thread::yield();
  }
  while (claimed != posted) std::this_thread::yield();
  over = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count_waiting(queue), 0u);
}

// Two queue pairs of one tenant, the second of which receives from the shared queue.
struct SharedLink : SharedQueue {
  SharedLink() {
    test::Party::QpOptions shared;
    shared.srq = srq;
    pair = world.connected({}, shared);
  }
  // The initiator claims, as client/device/datapath/direct.cc does.
  void claim_directly(uint32_t slot) {
    Candidate candidate;
    ASSERT_EQ(find_receive(queue, &candidate), Outcome::kDone);
    ASSERT_EQ(candidate.receive.slot, slot);
    pair.a->block->claiming.store(slot + 1);
    ASSERT_TRUE(claim(queue, candidate,
                      ipc::claimed_by(pair.a->link.number, pair.a->link.outbox->ring->head)));
  }
  test::World::Pair pair;
};

TEST_F(SharedLink, GivesBackWhatTheDeadHadClaimed) {
  post(5);
  claim_directly(5);
  EXPECT_THAT(claim_all(), IsEmpty());
  world.a->context.destroy_qp(*pair.a);
  EXPECT_THAT(claim_all(), ElementsAre(5));
}

TEST_F(SharedLink, KeepsWhatTheDeadHadCompleted) {
  post(5);
  claim_directly(5);
  pair.a->link.outbox->ring->head.store(1);
  world.a->context.reset_qp(*pair.a);
  EXPECT_THAT(claim_all(), IsEmpty());
}

TEST_F(SharedLink, OutlivesTheSharedQueue) {
  post(5);
  claim_directly(5);
  world.b->context.destroy_qp(*pair.b);
  world.b->context.srqs.remove(srq->handle);
  world.a->context.destroy_qp(*pair.a);
}

}  // namespace
}  // namespace vrdma::rdma
