// Messages between memory that must be reached on both sides: what they cost, and what ends them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::rdma_wqe;
using test::wqe_of;
using testing::ElementsAre;
using verbs::Opcode;
using verbs::WcStatus;

struct BothReached : ReachedPair {
  alignas(8) uint64_t word = 0;

  BothReached() {
    for (size_t i = 0; i < a_own.size(); ++i) a_own[i] = static_cast<uint8_t>(i * 11 + i / 251 + 1);
  }
  bool post_write(uint32_t length) {
    return a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached),
                       {{at(a_own), length, a_reached}});
  }
  uint64_t turns() const { return a.threads->counters().turns + b.threads->counters().turns; }
  // What comes next to the party's process waits as long as the lock is held.
  std::unique_lock<std::mutex> hang(test::Party& party) {
    rdma::Reach& reach = *party.context.process->reach();
    std::unique_lock held(*reach.memory()->changes);
    rdma::Reach::Job job;
    job.parts.push_back({reinterpret_cast<uint64_t>(&word), 8, 0});
    job.buffer = std::make_shared<std::vector<uint8_t>>(8);
    job.change = [](uint64_t old) { return old + 1; };
    job.done = [](bool) {};
    reach.submit(std::move(job));
    return held;
  }
  bool b_is_untouched() const {
    return std::all_of(b_own.begin(), b_own.end(), [](uint8_t byte) { return byte == 0; });
  }
};

TEST_F(BothReached, CostOneTurnForEachMebibyte) {
  size_t count = 0;
  const auto cost = [&](Opcode opcode, uint32_t length) {
    const bool reads = opcode == Opcode::kRdmaRead;
    std::fill(b_own.begin(), b_own.end(), uint8_t{0});
    if (reads) std::copy(a_own.rbegin(), a_own.rend(), b_own.begin());
    const uint64_t before = turns();
    const std::vector<verbs::Sge> to{{at(b_own), length - 3, b_reached},
                                     {at(b_own) + length - 3, 3, b_reached}};
    if (opcode == Opcode::kSend) {
      EXPECT_TRUE(b.post_receive(*pair.b, 1, to));
    }
    EXPECT_TRUE(a.post_send(
        *pair.a, opcode == Opcode::kSend ? wqe_of(opcode) : rdma_wqe(opcode, at(b_own), b_reached),
        {{at(a_own), length - 5, a_reached}, {at(a_own) + length - 5, 5, a_reached}}));
    EXPECT_EQ(statuses(*pair.a, ++count).back(), WcStatus::kSuccess);
    EXPECT_EQ(std::memcmp(a_own.data(), b_own.data(), length), 0);
    return turns() - before;
  };
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kSend, Opcode::kRdmaRead}) {
    EXPECT_EQ(cost(opcode, 8), 1u);
    EXPECT_EQ(cost(opcode, 100'001), 1u);
    EXPECT_EQ(cost(opcode, 1 << 20), 1u);
    EXPECT_EQ(cost(opcode, (1 << 20) + 9), 2u);
    EXPECT_EQ(cost(opcode, 3 << 20), 3u);
  }
}

// The target's key ends while the source's page does not come.
TEST_F(BothReached, LookAtKeysAgainThatHaveEnded) {
  auto held = hang(a);
  ASSERT_TRUE(post_write(1 << 20));
  settle();
  b.deregister(b_reached);
  held.unlock();
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kRemoteAccessError));
  EXPECT_TRUE(b_is_untouched());
}

TEST_F(BothReached, GoOnWhenOtherKeysHaveEnded) {
  const uint32_t other = b.register_memory(kBase, 64, kAllAccess);
  auto held = hang(a);
  ASSERT_TRUE(post_write(1 << 20));
  settle();
  b.deregister(other);
  held.unlock();
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(a_own.data(), b_own.data(), 1 << 20), 0);
}

// The receiver goes on at once, whatever the sender's page does.
TEST_F(BothReached, DoNotHoldUpAQueuePairThatHasFailed) {
  auto held = hang(a);
  ASSERT_TRUE(post_write(1 << 20));
  settle();
  EXPECT_EQ(pair.b->block->arriving.load(), 1u);
  pair.b->fail();
  EXPECT_EQ(pair.b->block->arriving.load(), 0u);
  held.unlock();
  settle();
  EXPECT_TRUE(b_is_untouched());
}

TEST_F(BothReached, HoldUpAQueuePairThatHasFailedWhileTheyMayStore) {
  auto held = hang(b);
  ASSERT_TRUE(post_write(1 << 20));
  ASSERT_TRUE(wait_for([&] { return a.threads->counters().turns == 1; }));
  settle();
  pair.b->fail();
  EXPECT_EQ(pair.b->block->arriving.load(), 1u);
  held.unlock();
  EXPECT_TRUE(wait_for([&] { return pair.b->block->arriving.load() == 0; }));
}

// Its eight bytes would lie on both sides of the first MiB.
TEST_F(BothReached, DoNotTearTheEndOfAWrite) {
  constexpr uint32_t kLength = (1u << 20) + 3;
  uint8_t* const to = b_own.data() + 5;
  const auto stored = [&](uint32_t at) { return std::atomic_ref(to[at]).load() != 0; };
  auto held = hang(a);
  ASSERT_TRUE(a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, at(b_own) + 5, b_reached),
                          {{at(a_own), kLength, a_reached}}));
  settle();
  held.unlock();
  // The loop stands still, so the next relay does not begin.
  for (int i = 0; i < 5000 && !stored(kLength - 9); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(stored(kLength - 9));
  for (uint32_t byte = kLength - 8; byte < kLength; ++byte) EXPECT_FALSE(stored(byte)) << byte;
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(a_own.data(), to, kLength), 0);
}

TEST_F(BothReached, MarkTheEndThatIsStored) {
  for (const uint32_t length : {1u, 8u, 13u, 4096u, 200'001u, 1u << 20}) {
    const size_t before = pair.a->block->sq_tail;
    ASSERT_TRUE(post_write(length));
    (void)statuses(*pair.a, before + 1);
    EXPECT_EQ(pair.a->block->mark.load(),
              ipc::mark_word(ipc::Mark::kDone, static_cast<uint32_t>(before)));
  }
}

}  // namespace
}  // namespace vrdma::transport
