#include "transport/shm/connected.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Event;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Connected : ReachedPair {
  WcStatus run(const ipc::SendWqe& wqe, const std::vector<verbs::Sge>& sges) {
    const size_t before = pair.a->block->sq_tail;
    EXPECT_TRUE(a.post_send(*pair.a, wqe, sges));
    const auto all = statuses(*pair.a, before + 1);
    return all.empty() ? WcStatus::kFlushed : all.back();
  }
  static void fill(uint8_t* memory, size_t size) {
    for (size_t i = 0; i < size; ++i) memory[i] = static_cast<uint8_t>(i * 11 + i / 251);
  }
  bool b_heard(Event event) {
    const auto events = b.events();
    return std::any_of(events.begin(), events.end(), [&](const auto& one) {
      return one.event == static_cast<uint32_t>(event) && one.object == pair.b->handle;
    });
  }
};

TEST_F(Connected, MovesLongMessagesInSlices) {
  fill(a.memory(), test::Party::kBytes);
  const uint32_t length = test::Party::kBytes - 5;
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase + 5, b_key), {{kBase, length, a_key}}),
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 5), a.memory(), length), 0);
}

TEST_F(Connected, ReachesEitherSide) {
  fill(a_own.data(), a_own.size());
  const auto size = static_cast<uint32_t>(a_own.size());
  // reached -> in place
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{at(a_own), size, a_reached}}),
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b.memory(), a_own.data(), size), 0);
  // in place -> reached
  fill(a.memory(), size);
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached), {{kBase, size, a_key}}),
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b_own.data(), a.memory(), size), 0);
  // READ, reached on both sides, scattered
  std::fill(a_own.begin(), a_own.end(), uint8_t{0});
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaRead, at(b_own), b_reached),
                {{at(a_own), 1000, a_reached},
                 {kBase, 1000, a_key},
                 {at(a_own) + 1000, size - 2000, a_reached}}),
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(a_own.data(), b_own.data(), 1000), 0);
  EXPECT_EQ(std::memcmp(a.memory(), b_own.data() + 1000, 1000), 0);
  EXPECT_EQ(std::memcmp(a_own.data() + 1000, b_own.data() + 2000, size - 2000), 0);
}

TEST_F(Connected, DoesAtomicsOnReachedMemory) {
  auto* word = reinterpret_cast<uint64_t*>(b_own.data());
  *word = 5;
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
  add.rdma.compare_add = 3;
  EXPECT_EQ(run(add, {{at(a_own), 8, a_reached}}), WcStatus::kSuccess);
  EXPECT_EQ(*word, 8u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(a_own.data()), 5u);
  ipc::SendWqe swap = rdma_wqe(Opcode::kCompareSwap, at(b_own), b_reached);
  swap.rdma.compare_add = 8;
  swap.rdma.swap = 100;
  EXPECT_EQ(run(swap, {{kBase, 8, a_key}}), WcStatus::kSuccess);
  EXPECT_EQ(*word, 100u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(a.memory()), 8u);
}

// Each of many queue pairs takes its turn: what they were answered are the numbers up to the sum.
TEST_F(Connected, LosesNoAtomicOnReachedMemory) {
  constexpr uint64_t kEach = 12;
  const World::Pair pairs[] = {pair, world.connected(), world.connected()};
  auto* counter = reinterpret_cast<uint64_t*>(b_own.data());
  auto* lock = counter + 1;
  std::vector<uint64_t> answers;
  for (uint64_t i = 0; i < kEach; ++i) {
    for (uint64_t which = 0; which < std::size(pairs); ++which) {
      ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
      add.rdma.compare_add = 1;
      // Into memory of either kind.
      const uint64_t to = 8 * (which * kEach + i);
      ASSERT_TRUE(a.post_send(*pairs[which].a, add,
                              {which == 0 ? verbs::Sge{kBase + to, 8, a_key}
                                          : verbs::Sge{at(a_own) + to, 8, a_reached}}));
    }
  }
  for (uint64_t which = 0; which < std::size(pairs); ++which) {
    EXPECT_THAT(statuses(*pairs[which].a, kEach), testing::Each(WcStatus::kSuccess));
    const uint8_t* from = which == 0 ? a.memory() : a_own.data();
    for (uint64_t i = 0; i < kEach; ++i)
      answers.push_back(reinterpret_cast<const uint64_t*>(from)[which * kEach + i]);
  }
  EXPECT_EQ(*counter, kEach * std::size(pairs));
  std::sort(answers.begin(), answers.end());
  for (uint64_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i], i);
  // A lock that several want at once is won by one.
  for (uint64_t which = 0; which < std::size(pairs); ++which) {
    ipc::SendWqe swap = rdma_wqe(Opcode::kCompareSwap, at(b_own) + 8, b_reached);
    swap.rdma.swap = which + 1;
    ASSERT_TRUE(a.post_send(*pairs[which].a, swap, {{kBase + 8 * which, 8, a_key}}));
  }
  int winners = 0;
  for (uint64_t which = 0; which < std::size(pairs); ++which) {
    EXPECT_EQ(statuses(*pairs[which].a, kEach + 1).back(), WcStatus::kSuccess);
    const uint64_t seen = reinterpret_cast<const uint64_t*>(a.memory())[which];
    if (seen != 0) {
      EXPECT_EQ(seen, *lock);
      continue;
    }
    ++winners;
    EXPECT_EQ(*lock, which + 1);
  }
  EXPECT_EQ(winners, 1);
}

// An initiator on a direct link adds to the same word meanwhile.
TEST_F(Connected, ChangesAnOperandInPlaceAtOnce) {
  constexpr uint64_t kRounds = 2000;
  auto* word = reinterpret_cast<uint64_t*>(b.memory());
  *word = 0;
  std::atomic<bool> stop = false;
  uint64_t others = 0;
  std::thread direct([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
      ++others;
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, kBase, b_key);
    add.rdma.compare_add = 1;
    ASSERT_TRUE(a.post_send(*pair.a, add, {{at(a_own), 8, a_reached}}));
    ASSERT_TRUE(wait_for([&] { return pair.a->block->sq_tail == i + 1; }));
  }
  stop = true;
  direct.join();
  EXPECT_EQ(*word, kRounds + others);
}

// What the responder does once it has seen that its memory changed does not fail the request.
TEST_F(Connected, AnswersAnAtomicWhoseKeyIsGoneSince) {
  auto* word = reinterpret_cast<uint64_t*>(b_own.data());
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
  add.rdma.compare_add = 1;
  ASSERT_TRUE(a.post_send(*pair.a, add, {{kBase, 8, a_key}}));
  std::unique_lock held(*b.context.process->reach()->memory()->changes);
  ASSERT_TRUE(wait_for([&] { return pair.b->block->arriving == 1; }));
  held.unlock();
  while (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) std::this_thread::yield();
  b.deregister(b_reached);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
}

// What was begun is done once, and its answer goes nowhere.
TEST_F(Connected, IsAbandonedWhileItChangesAnOperand) {
  auto* word = reinterpret_cast<uint64_t*>(b_own.data());
  for (uint64_t round = 0; round < 3; ++round) {
    pair = world.connected();
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
    add.rdma.compare_add = 1;
    ASSERT_TRUE(a.post_send(*pair.a, add, {{at(a_own), 8, a_reached}}));
    std::unique_lock held(*b.context.process->reach()->memory()->changes);
    ASSERT_TRUE(wait_for([&] { return pair.b->block->arriving == 1; }));
    if (round == 0) a.context.destroy_qp(*pair.a);
    if (round == 1) a.context.reset_qp(*pair.a);
    if (round == 2) b.context.destroy_qp(*pair.b);
    held.unlock();
    EXPECT_TRUE(wait_for([&] { return __atomic_load_n(word, __ATOMIC_RELAXED) == round + 1; }));
    if (round == 2) {
      EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRetryExceeded));
    }
    settle(1);
    EXPECT_EQ(*word, round + 1);
  }
}

// A worker died between the marks of the first request.
TEST_F(Connected, DoubtsAWriteOnlyWhereItsEndIsNotThere) {
  auto* written = reinterpret_cast<uint64_t*>(b.memory());
  const auto was_begun = [&](uint64_t value, uint64_t there) {
    pair = world.connected();
    std::memcpy(a.memory(), &value, sizeof value);
    *written = there;
    pair.a->block->mark = ipc::mark_word(ipc::Mark::kBegun, 0);
    pair.a->sender->adopted();
    return run(rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{kBase, sizeof value, a_key}});
  };
  const base::Counter& doubted = world.fabric.counters.requests_in_doubt;
  EXPECT_EQ(was_begun(5, 5), WcStatus::kSuccess);
  EXPECT_EQ(doubted, 0u);
  EXPECT_EQ(was_begun(5, 4), WcStatus::kRetryExceeded);
  EXPECT_EQ(doubted, 1u);
  EXPECT_EQ(*written, 4u);
}

TEST_F(Connected, LooksForTheEndOfADoubtfulWriteInReachedMemory) {
  const auto size = static_cast<uint32_t>(b_own.size());
  // What the last byte was before, and what it is now.
  const auto was_begun = [&](uint8_t was, uint8_t is) {
    pair = world.connected();
    fill(a_own.data(), size);
    std::fill(b_own.begin(), b_own.end(), uint8_t{0});
    std::copy(a_own.end() - 8, a_own.end(), b_own.end() - 8);
    b_own.back() = is;
    ipc::SendWqe write = rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached);
    std::memcpy(&write.old_value, &*(a_own.end() - 8), 8);
    reinterpret_cast<uint8_t*>(&write.old_value)[7] = was;
    pair.a->block->mark = ipc::mark_word(ipc::Mark::kBegun, 0);
    pair.a->block->mark_receive = SendRing::kOldValueStands;
    pair.a->sender->adopted();
    EXPECT_EQ(run(write, {{at(a_own), size, a_reached}}), WcStatus::kSuccess);
  };
  fill(a_own.data(), size);
  const uint8_t becomes = a_own.back();
  const auto other = static_cast<uint8_t>(becomes + 1), third = static_cast<uint8_t>(becomes + 2);
  was_begun(other, becomes);
  EXPECT_EQ(b_own.front(), 0) << "it is not written twice";
  was_begun(other, third);
  EXPECT_EQ(b_own.front(), 0) << "nor when the program has written there since";
  EXPECT_EQ(b_own.back(), third);
  was_begun(other, other);
  EXPECT_EQ(b_own, a_own) << "it was not written";
  EXPECT_EQ(world.fabric.counters.requests_in_doubt, 0u);
}

TEST_F(Connected, FindsOutWhetherADoubtfulAtomicWasDone) {
  auto* word = reinterpret_cast<uint64_t*>(b_own.data());
  const auto was_begun = [&](ipc::Mark mark, uint64_t old, uint64_t there) {
    pair = world.connected();
    *word = there;
    pair.a->block->mark = ipc::mark_word(mark, 0);
    pair.a->block->mark_receive = SendRing::kOldValueStands;
    pair.a->sender->adopted();
    ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
    add.rdma.compare_add = 3;
    add.old_value = old;
    return run(add, {{at(a_own), 8, a_reached}});
  };
  const auto answer = [&] { return *reinterpret_cast<uint64_t*>(a_own.data()); };
  EXPECT_EQ(was_begun(ipc::Mark::kBegun, 5, 5), WcStatus::kSuccess);
  EXPECT_EQ(*word, 8u);
  EXPECT_EQ(answer(), 5u);
  EXPECT_EQ(was_begun(ipc::Mark::kBegun, 6, 9), WcStatus::kSuccess);
  EXPECT_EQ(*word, 9u);
  EXPECT_EQ(answer(), 6u);
  EXPECT_EQ(was_begun(ipc::Mark::kChanged, 7, 100), WcStatus::kSuccess);
  EXPECT_EQ(*word, 100u);
  EXPECT_EQ(answer(), 7u);
  const base::Counter& doubted = world.fabric.counters.requests_in_doubt;
  EXPECT_EQ(doubted, 0u);
  EXPECT_EQ(was_begun(ipc::Mark::kBegun, 8, 12), WcStatus::kRetryExceeded);
  EXPECT_EQ(doubted, 1u);
  EXPECT_EQ(*word, 12u);
}

// While a job stores by way of a queue pair in ERR, nothing is flushed.
TEST_F(Connected, TellsWhileBytesArrive) {
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
  add.rdma.compare_add = 1;
  ASSERT_TRUE(a.post_send(*pair.a, add, {{kBase, 8, a_key}}));
  std::unique_lock held(*b.context.process->reach()->memory()->changes);
  ASSERT_TRUE(wait_for([&] { return pair.b->block->arriving == 1; }));
  pair.b->fail();
  settle(5);
  EXPECT_EQ(pair.b->block->arriving, 1u);
  held.unlock();
  EXPECT_TRUE(wait_for([&] { return pair.b->block->arriving == 0; }));
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(b_own.data()), 1u);
}

TEST_F(Connected, CompletesReceivesInOrder) {
  for (uint64_t i = 0; i < 8; ++i)
    ASSERT_TRUE(b.post_receive(*pair.b, i, {{kBase + i * 16, 16, b_key}}));
  for (uint32_t i = 0; i < 8; ++i) {
    a.memory()[0] = static_cast<uint8_t>(i + 1);
    ipc::SendWqe send = wqe_of(Opcode::kSendWithImm);
    send.imm = i;
    EXPECT_EQ(run(send, {{kBase, i + 1, a_key}}), WcStatus::kSuccess);
  }
  const auto entries = b.received(*pair.b);
  ASSERT_THAT(entries, SizeIs(8));
  for (uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(entries[i].imm, i);
    EXPECT_EQ(entries[i].byte_len, i + 1);
    EXPECT_EQ(b.memory()[i * 16], i + 1);
  }
}

TEST_F(Connected, BlamesWhoIsToBlame) {
  struct Case {
    const char* name;
    ipc::SendWqe wqe;
    verbs::Sge data;
    std::vector<verbs::Sge> receive;
    WcStatus status;
    bool responder_fails;
  };
  const uint32_t gone = a.register_memory(16, 4096, kAllAccess, ipc::Way::kReached);
  const uint32_t b_gone = b.register_memory(16, 4096, kAllAccess, ipc::Way::kReached);
  const verbs::Sge good{kBase, 8, a_key};
  const ipc::SendWqe send = wqe_of(Opcode::kSend);
  const std::vector<Case> all{
      {"lkey", send, {kBase, 8, 1}, {{kBase, 8, b_key}}, WcStatus::kLocalProtectionError, false},
      {"reached, not there",
       send,
       {16, 8, gone},
       {{kBase, 8, b_key}},
       WcStatus::kLocalProtectionError,
       false},
      {"rkey",
       rdma_wqe(Opcode::kRdmaWrite, kBase, 1),
       good,
       {},
       WcStatus::kRemoteAccessError,
       true},
      {"remote, not there",
       rdma_wqe(Opcode::kRdmaWrite, 16, b_gone),
       good,
       {},
       WcStatus::kRemoteAccessError,
       true},
      {"read, not there",
       rdma_wqe(Opcode::kRdmaRead, 16, b_gone),
       good,
       {},
       WcStatus::kRemoteAccessError,
       true},
      {"read to nowhere",
       rdma_wqe(Opcode::kRdmaRead, kBase, b_key),
       {16, 8, gone},
       {},
       WcStatus::kLocalProtectionError,
       false},
      {"misaligned",
       rdma_wqe(Opcode::kFetchAdd, kBase + 4, b_key),
       good,
       {},
       WcStatus::kRemoteInvalidRequest,
       true},
      {"short receive", send, good, {{kBase, 4, b_key}}, WcStatus::kRemoteInvalidRequest, true},
      {"receive's lkey", send, good, {{kBase, 8, 1}}, WcStatus::kRemoteOperationError, true},
      {"receive, not there", send, good, {{16, 8, b_gone}}, WcStatus::kRemoteOperationError, true},
  };
  for (const auto& one : all) {
    pair = world.connected();
    if (!one.receive.empty()) {
      ASSERT_TRUE(b.post_receive(*pair.b, 1, one.receive));
    }
    EXPECT_EQ(run(one.wqe, {one.data}), one.status) << one.name;
    EXPECT_EQ(pair.a->state(), QpState::kErr) << one.name;
    EXPECT_EQ(pair.b->state(), one.responder_fails ? QpState::kErr : QpState::kRts) << one.name;
  }
}

TEST_F(Connected, RaisesTheEventsOfAResponder) {
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase, 1), {{kBase, 8, a_key}}),
            WcStatus::kRemoteAccessError);
  EXPECT_TRUE(b_heard(Event::kQpAccessError));
  pair = world.connected();
  pair.b->block->access = 0;
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{kBase, 8, a_key}}),
            WcStatus::kRemoteInvalidRequest);
  EXPECT_TRUE(b_heard(Event::kQpRequestError));
}

TEST_F(Connected, TellsTheReceiverWhatWasWrong) {
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 4, b_key}}));
  EXPECT_EQ(run(wqe_of(Opcode::kSend), {{kBase, 8, a_key}}), WcStatus::kRemoteInvalidRequest);
  auto entries = b.received(*pair.b);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].status, static_cast<uint8_t>(WcStatus::kLocalLengthError));
  pair = world.connected();
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, 1}}));
  EXPECT_EQ(run(wqe_of(Opcode::kSend), {{kBase, 8, a_key}}), WcStatus::kRemoteOperationError);
  entries = b.received(*pair.b);
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].status, static_cast<uint8_t>(WcStatus::kLocalProtectionError));
}

TEST_F(Connected, RefusesForgedAddresses) {
  const uint32_t forged = a.register_memory(ipc::kMemoryArenaSize - 4, 4096, kAllAccess);
  EXPECT_NE(
      run(rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{ipc::kMemoryArenaSize - 4, 4096, forged}}),
      WcStatus::kSuccess);
  EXPECT_EQ(pair.a->state(), QpState::kErr);
}

TEST_F(Connected, ChecksKeysBeforeEachSlice) {
  const uint32_t key = b.register_all(kAllAccess);
  ASSERT_TRUE(a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, kBase, key),
                          {{kBase, uint32_t{test::Party::kBytes}, a_key}}));
  world.loop->post([&] { b.deregister(key); });
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRemoteAccessError));
}

TEST_F(Connected, IsAbandonedWhileItReaches) {
  for (int round = 0; round < 20; ++round) {
    pair = world.connected();
    ASSERT_TRUE(a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached),
                            {{at(a_own), uint32_t(a_own.size()), a_reached}}));
    // Somewhere in the middle.
    const auto end = base::Clock::steady().now() + std::chrono::microseconds(100 * round);
    EXPECT_TRUE(wait_for([&] { return base::Clock::steady().now() >= end; }));
    switch (round % 4) {
      case 0:
        a.context.destroy_qp(*pair.a);
        break;
      case 1:
        b.context.destroy_qp(*pair.b);
        break;
      case 2:
        a.context.reset_qp(*pair.a);
        break;
      default:
        pair.b->fail();
    }
    settle(1);
  }
}

struct Shared : Rig {
  rdma::Srq* srq = b.add_srq(8);
  World::Pair pair = connect();
  World::Pair connect() {
    test::Party::QpOptions shared;
    shared.srq = srq;
    return world.connected({}, shared);
  }
};

TEST_F(Shared, TakesReceivesFromTheSharedQueue) {
  const World::Pair other = connect();
  for (const uint32_t slot : {5u, 2u}) {
    ASSERT_TRUE(b.post_receive(*srq, slot, {{kBase, 64, b_key}}));
  }
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  ASSERT_TRUE(a.post_send(*other.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*other.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(b.received(*pair.b).at(0).slot, 5u);
  EXPECT_EQ(b.received(*other.b).at(0).slot, 2u);
}

TEST_F(Shared, WaitsForTheSharedQueue) {
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  ASSERT_TRUE(wait_for([&] { return srq->block->waiter == 1; }));
  ASSERT_TRUE(b.post_receive(*srq, 1, {{kBase, 64, b_key}}));
  ring(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(srq->block->waiter, 0u);
}

TEST_F(Shared, EndsASessionWhoseSlotsAreImpossible) {
  ASSERT_TRUE(b.post_receive(*srq, 1, {{kBase, 64, b_key}}));
  const_cast<uint32_t*>(srq->receives.posted())[0] = 1u << 31;
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_TRUE(wait_for([&] { return b.corrupt == 1; }));
  EXPECT_EQ(a.corrupt, 0);
}

// What was claimed for a message that did not arrive is there for the next.
TEST_F(Shared, GetsBackWhatWasClaimedInVain) {
  std::vector<uint8_t> own(1u << 20);
  const uint32_t reached = a.register_memory(reinterpret_cast<uint64_t>(own.data()), own.size(),
                                             kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(b.post_receive(*srq, 4, {{kBase, 1u << 20, b_key}}));
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend),
                          {{reinterpret_cast<uint64_t>(own.data()), 1u << 20, reached}}));
  ASSERT_TRUE(wait_for([&] { return rdma::count_waiting(srq->receives) == 0; }));
  if (!b.received(*pair.b).empty()) GTEST_SKIP() << "it was faster";
  a.context.destroy_qp(*pair.a);
  EXPECT_EQ(rdma::count_waiting(srq->receives), 1u);
  const World::Pair other = connect();
  ASSERT_TRUE(a.post_send(*other.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*other.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(b.received(*other.b).at(0).slot, 4u);
}

// Of a link that has ended. The next message may come there.
TEST_F(Shared, GetsAReceiveBackWhenNothingIsStoredThereAnyMore) {
  std::vector<uint64_t> own(64);
  const auto at = reinterpret_cast<uint64_t>(own.data());
  const uint32_t reached = b.register_memory(at, own.size() * 8, kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(b.post_receive(*srq, 4, {{at + 64, 64, reached}}));
  // Jobs of a process run in their order, so that the message's waits behind the atomic's.
  const World::Pair other = connect();
  std::unique_lock held(*b.context.process->reach()->memory()->changes);
  ASSERT_TRUE(a.post_send(*other.a, rdma_wqe(Opcode::kFetchAdd, at, reached), {{kBase, 8, a_key}}));
  ASSERT_TRUE(wait_for([&] { return other.b->block->arriving == 1; }));
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  ASSERT_TRUE(wait_for([&] { return pair.b->block->arriving == 1; }));
  pair.b->fail();
  settle(5);
  EXPECT_EQ(rdma::count_waiting(srq->receives), 0u);
  held.unlock();
  EXPECT_TRUE(wait_for([&] { return rdma::count_waiting(srq->receives) == 1; }));
}

// A queue pair joined to itself.
TEST_F(Connected, LoopsBack) {
  rdma::Qp* self = world.add_qp(a, {});
  world.name(*self, *self);
  self->set_state(QpState::kInit);
  world.to_rtr(*self);
  world.to_rts(*self);
  ASSERT_TRUE(a.post_receive(*self, 1, {{kBase + 4096, 64, a_key}}));
  *a.memory() = 77;
  ASSERT_TRUE(a.post_send(*self, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*self, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(*a.memory(kBase + 4096), 77);
  ASSERT_TRUE(a.post_send(*self, rdma_wqe(Opcode::kRdmaWrite, kBase, 1), {{kBase, 8, a_key}}));
  EXPECT_EQ(statuses(*self, 2).back(), WcStatus::kRemoteAccessError);
  EXPECT_EQ(self->state(), QpState::kErr);
}

// The responder's memory is that of a virtual machine: its pages lie anywhere in two files.
TEST_F(Connected, WritesIntoScatteredPages) {
  constexpr uint64_t kPage = 4096;
  constexpr uint64_t kPages = 8;
  const base::Fd files[] = {base::make_memfd("test-ram", kPages * kPage).value(),
                            base::make_memfd("test-ram", kPages * kPage).value()};
  const base::Fd table = base::make_memfd("test-table", ipc::kPageTableSize).value();
  const auto entries =
      base::Mapping::shared(table, ipc::kPageTableSize, 0, PROT_READ | PROT_WRITE).value();
  for (uint64_t i = 0; i < kPages; ++i)
    entries.at<ipc::PageEntry>(0)[kBase / kPage + i] = ipc::page_entry(i % 2, kPages - 1 - i);
  const rdma::AddressSpace::File shown[] = {{&files[0], kPages * kPage},
                                            {&files[1], kPages * kPage}};
  ASSERT_TRUE(b.context.process->space()->show(&table, shown));
  fill(a.memory(), kPages * kPage);
  const auto length = static_cast<uint32_t>(kPages * kPage - 10);
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase + 5, b_key), {{kBase + 5, length, a_key}}),
            WcStatus::kSuccess);
  for (uint64_t i = 0; i < kPages; ++i) {
    uint8_t page[kPage];
    ASSERT_EQ(
        ::pread(files[i % 2].get(), page, kPage, static_cast<off_t>((kPages - 1 - i) * kPage)),
        static_cast<ssize_t>(kPage));
    const uint64_t from = i == 0 ? 5 : 0, to = i + 1 == kPages ? kPage - 5 : kPage;
    EXPECT_EQ(std::memcmp(page + from, a.memory(kBase + i * kPage + from), to - from), 0) << i;
  }
  std::memset(a.memory(), 0, kPages * kPage);
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaRead, kBase + kPage - 1, b_key), {{kBase, 2, a_key}}),
            WcStatus::kSuccess);
  EXPECT_EQ(a.memory()[0], static_cast<uint8_t>((kPage - 1) * 11 + (kPage - 1) / 251));
  EXPECT_EQ(a.memory()[1], static_cast<uint8_t>(kPage * 11 + kPage / 251));
}

}  // namespace
}  // namespace vrdma::transport
