// A sender takes over from a dead worker what words say that the program can write.
#include <algorithm>
#include <cstring>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::ElementsAre;
using verbs::Opcode;
using verbs::WcStatus;

struct AfterACrash : ReachedPair {
  // Of the request that is posted next, as if a worker had died.
  static void mark(rdma::Qp& qp, ipc::Mark mark, uint32_t receive = 0) {
    qp.block->mark_receive = receive;
    qp.block->mark = ipc::mark_word(mark, qp.block->sq_tail);
    qp.sender->adopted();
  }
};

// The answer has eight bytes, whatever the request has room for.
TEST_F(AfterACrash, BringsNoMoreThanAnAnswer) {
  const ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, at(b_own), b_reached);
  for (const uint64_t to : {kBase, at(a_own)}) {
    const uint32_t key = to == kBase ? a_key : a_reached;
    pair = world.connected();
    mark(*pair.a, ipc::Mark::kChanged);
    ASSERT_TRUE(a.post_send(*pair.a, add, {{to, 1u << 16, key}}));
    EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kLocalLengthError));
  }
  EXPECT_EQ(a.memory()[8], 0);
  EXPECT_EQ(a_own[8], 0);
}

// Of an unreliable connection, the message may be lost before that is found out.
TEST_F(AfterACrash, OneMessageIsInDoubt) {
  test::Party::QpOptions options;
  options.type = verbs::QpType::kUc;
  pair = world.connected(options, options);
  mark(*pair.a, ipc::Mark::kBegun, SendRing::kOldValueStands);
  ipc::SendWqe write = rdma_wqe(Opcode::kRdmaWrite, at(b_own), b_reached);
  write.old_value = 1;
  world.fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, true);
  ASSERT_TRUE(a.post_send(*pair.a, write, {{at(a_own), 4096, a_reached}}));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  world.fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, false);
  std::fill(a_own.begin(), a_own.begin() + 4096, uint8_t{5});
  ASSERT_TRUE(a.post_send(*pair.a, write, {{at(a_own), 4096, a_reached}}));
  EXPECT_THAT(statuses(*pair.a, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  EXPECT_EQ(b_own[0], 5);
}

struct AfterACrashOnADirectLink : Rig {
  AfterACrashOnADirectLink() : Rig("red") {}
  World::Pair pair = world.connected();
};

// The entry stood, and the number of entries did not say so yet.
TEST_F(AfterACrashOnADirectLink, AnEntryIsNotReplacedByTheNext) {
  ASSERT_TRUE(pair.a->link.out_direct);
  ipc::RecvRing& outbox = *pair.a->link.outbox->ring;
  for (uint64_t i = 0; i < 2; ++i)
    ASSERT_TRUE(b.post_receive(*pair.b, i, {{kBase + i * 8, 8, b_key}}));
  pair.a->block->mark_receive = 0;
  pair.a->block->mark = ipc::mark_word(ipc::Mark::kBegun, 0);
  outbox.entries()[0].number = 1;
  pair.a->sender->adopted();
  std::memcpy(a.memory(), "first...second..", 16);
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_EQ(outbox.head, 1u);
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase + 8, 8, a_key}}));
  EXPECT_THAT(statuses(*pair.a, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  EXPECT_EQ(outbox.head, 2u);
  EXPECT_EQ(outbox.entries()[1].number, 2u);
  EXPECT_EQ(std::memcmp(b.memory(kBase + 8), "second..", 8), 0);
}

}  // namespace
}  // namespace vrdma::transport
