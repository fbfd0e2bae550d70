// What a sender takes over from a dead worker stands in words that the program can write.
#include <algorithm>
#include <cstring>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::rdma_wqe;
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

}  // namespace
}  // namespace vrdma::transport
