#include "transport/send_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/rdma/world.h"

namespace vrdma::transport {
namespace {

using test::wqe_of;
using testing::ElementsAre;
using testing::IsEmpty;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;
using Fetched = SendRing::Fetched;

struct SendRings : testing::Test {
  test::World world{"blue"};  // so that nothing is direct
  test::Party& a = *world.a;
  test::World::Pair pair = world.connected();
  rdma::Qp& qp = *pair.a;
  SendRing ring{qp};
  rdma::WorkRequest window[4];

  void post(uint64_t wr_id) {
    ipc::SendWqe wqe = wqe_of(Opcode::kSend);
    wqe.wr_id = wr_id;
    ASSERT_TRUE(a.post_send(qp, wqe, {}));
  }
  std::vector<uint32_t> statuses() {
    std::vector<uint32_t> all;
    for (const auto& result : a.results(qp)) all.push_back(result.status);
    return all;
  }
};

constexpr uint32_t value(WcStatus status) { return static_cast<uint32_t>(status); }

TEST_F(SendRings, GiveAWindowOfRequestsAndCompleteItInOrder) {
  for (uint64_t i = 0; i < 3; ++i) post(i);
  ASSERT_TRUE(ring.ours());
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
    EXPECT_EQ(window[i].wqe.wr_id, i);
  }
  EXPECT_EQ(ring.fetch(&window[3]), Fetched::kNothing);
  EXPECT_EQ(ring.in_hand(), 3u);
  EXPECT_THAT(statuses(), IsEmpty()) << "nothing is complete by being fetched";
  ring.complete(window[0], WcStatus::kSuccess, 0);
  ring.complete(window[1], WcStatus::kSuccess, 0);
  EXPECT_EQ(qp.block->sq_tail, 2u);
  post(3);
  ASSERT_EQ(ring.fetch(&window[3]), Fetched::kRequest);
  EXPECT_EQ(window[3].wqe.wr_id, 3u);
  EXPECT_EQ(ring.in_hand(), 2u);
}

TEST_F(SendRings, GiveAnewWhatWasPutBack) {
  for (uint64_t i = 0; i < 2; ++i) post(i);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
  ring.complete(window[0], WcStatus::kSuccess, 0);
  ring.put_back();
  SendRing another{qp};  // of the sender that comes after
  ASSERT_EQ(another.fetch(&window[2]), Fetched::kRequest);
  EXPECT_EQ(window[2].wqe.wr_id, 1u);
}

TEST_F(SendRings, DrainOnlyWhenTheWindowIsEmpty) {
  for (uint64_t i = 0; i < 2; ++i) post(i);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
  qp.set_state(QpState::kSqd);
  qp.attributes.sq_draining = 1;
  ring.complete(window[0], WcStatus::kSuccess, 0);
  EXPECT_EQ(qp.attributes.sq_draining, 1);
  ring.complete(window[1], WcStatus::kSuccess, 0);
  EXPECT_EQ(qp.attributes.sq_draining, 0);
}

TEST_F(SendRings, FailTheQueuePairWithItsRequest) {
  for (uint64_t i = 0; i < 2; ++i) post(i);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
  ring.complete(window[0], WcStatus::kRetryExceeded, 0);
  EXPECT_EQ(qp.state(), QpState::kErr);
  EXPECT_THAT(statuses(), ElementsAre(value(WcStatus::kRetryExceeded)));
  ring.put_back();
  EXPECT_FALSE(ring.let_go()) << "the program flushes what is left";
}

TEST_F(SendRings, TellOfEachCompletionOnce) {
  for (uint64_t i = 0; i < 2; ++i) post(i);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
  ASSERT_TRUE(a.post_receive(qp, 7, {}));
  const auto arm = [&] {
    for (const rdma::Cq* cq : {qp.send_cq, qp.recv_cq})
      cq->bell->arm.store(ipc::arm_word(ipc::Arm::kNext));
  };
  const auto woken = [&] {
    std::vector<uint32_t> all;
    for (const auto& wake : a.wakes()) all.push_back(wake.cq);
    return all;
  };
  ASSERT_NE(qp.send_cq, qp.recv_cq);
  arm();
  ring.complete(window[0], WcStatus::kRetryExceeded, 0);
  EXPECT_THAT(woken(), ElementsAre(qp.send_cq->slot, qp.recv_cq->slot));
  arm();  // the program has polled both
  ring.complete(window[1], WcStatus::kFlushed, 0);
  EXPECT_THAT(woken(), ElementsAre(qp.send_cq->slot)) << "no receive failed by that";
}

TEST_F(SendRings, EndASessionThatTakesBackWhatIsInHand) {
  for (uint64_t i = 0; i < 2; ++i) post(i);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ring.fetch(&window[i]), Fetched::kRequest);
  qp.block->sq_head = 1;
  EXPECT_EQ(ring.fetch(&window[2]), Fetched::kCorrupt);
  EXPECT_EQ(a.corrupt, 1);
}

TEST_F(SendRings, TellHowFarADeadWorkerCame) {
  post(0);
  ASSERT_EQ(ring.fetch(&window[0]), Fetched::kRequest);
  EXPECT_EQ(ring.interrupted().mark, ipc::Mark::kNone);
  ring.mark(ipc::Mark::kBegun, 17);
  SendRing next{qp};
  ASSERT_EQ(next.fetch(&window[1]), Fetched::kRequest);
  EXPECT_EQ(next.interrupted().mark, ipc::Mark::kBegun);
  EXPECT_EQ(next.interrupted().receive, 17u);
  next.mark(ipc::Mark::kDone);
  EXPECT_EQ(next.interrupted().mark, ipc::Mark::kDone);
  next.complete(window[1], WcStatus::kSuccess, 0);
  post(1);
  ASSERT_EQ(next.fetch(&window[2]), Fetched::kRequest);
  EXPECT_EQ(next.interrupted().mark, ipc::Mark::kNone) << "that was the one before";
}

}  // namespace
}  // namespace vrdma::transport
