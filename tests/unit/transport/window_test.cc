// Work requests that change keys: BIND_WINDOW, LOCAL_INVALIDATE, SEND_WITH_INVALIDATE.
#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::World;
using testing::ElementsAre;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct WindowRequests : Rig {
  World::Pair pair = world.connected();
  rdma::Mr& mr = *make_mr();
  rdma::Mw& mw = *make_mw();

  rdma::Mr* make_mr() {
    auto made = std::make_unique<rdma::Mr>();
    made->key = b.context.take_key({made.get(), nullptr});
    made->pd = b.pd;
    made->region.pd = b.pd->handle;
    made->region.access = kAllAccess | verbs::kMwBind;
    made->region.addr = made->region.iova = kBase;
    made->region.length = 4096;
    made->region.way = ipc::Way::kInPlace;
    return b.context.mrs.add(std::move(made));
  }
  rdma::Mw* make_mw() {
    auto made = std::make_unique<rdma::Mw>();
    made->key = b.context.take_key({nullptr, made.get()});
    made->type_2 = true;
    made->pd = b.pd;
    return b.context.mws.add(std::move(made));
  }
  ipc::SendWqe bind() const {
    ipc::SendWqe wqe = test::wqe_of(Opcode::kBindWindow);
    const uint32_t next = (mw.key & ~0xffu) | ((mw.key + 1) & 0xff);  // ibv_inc_rkey(3)
    wqe.bind = {kBase, 64, mr.handle, verbs::kRemoteWrite, mw.handle, next};
    return wqe;
  }
  static ipc::SendWqe invalidate(Opcode opcode, uint32_t key) {
    ipc::SendWqe wqe = test::wqe_of(opcode);
    wqe.imm = key;
    return wqe;
  }
  WcStatus run(test::Party& party, rdma::Qp& qp, const ipc::SendWqe& wqe) {
    const size_t before = qp.block->sq_tail;
    EXPECT_TRUE(party.post_send(qp, wqe, {}));
    const auto all = statuses(qp, before + 1);
    return all.empty() ? WcStatus::kFlushed : all.back();
  }
  bool is_bound() {
    rdma::Region region;
    return rdma::find_region(b.context.keys(), mw.key, &region);
  }
};

TEST_F(WindowRequests, BindAndInvalidate) {
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  EXPECT_TRUE(is_bound());
  ASSERT_EQ(run(b, *pair.b, invalidate(Opcode::kLocalInvalidate, mw.key)), WcStatus::kSuccess);
  EXPECT_FALSE(is_bound());
  EXPECT_EQ(run(b, *pair.b, invalidate(Opcode::kLocalInvalidate, mw.key)),
            WcStatus::kLocalQpOperationError);
  EXPECT_EQ(pair.b->state(), QpState::kErr);
}

TEST_F(WindowRequests, NeedNoPeer) {
  a.context.destroy_qp(*pair.a);
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  EXPECT_TRUE(is_bound());
}

TEST_F(WindowRequests, FailIfTheyAreAgainstTheRules) {
  ipc::SendWqe wrong = bind();
  wrong.bind.length = 4097;
  EXPECT_EQ(run(b, *pair.b, wrong), WcStatus::kWindowBindError);
  EXPECT_FALSE(is_bound());
  EXPECT_EQ(pair.b->state(), QpState::kErr);
}

TEST_F(WindowRequests, WaitForAnInitiatorButNotForItsLink) {
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  pair.a->link.out_direct = true;  // and in the middle of a request
  pair.a->block->busy.store(1);
  ASSERT_TRUE(b.post_send(*pair.b, invalidate(Opcode::kLocalInvalidate, mw.key), {}));
  ASSERT_TRUE(wait_for([&] { return !is_bound(); }));
  EXPECT_EQ(pair.b->block->sq_tail, 1u);
  pair.b->sender->link_changed();  // does not invalidate a second time
  pair.a->block->busy.store(2);
  EXPECT_THAT(statuses(*pair.b, 2), ElementsAre(WcStatus::kSuccess, WcStatus::kSuccess));
  pair.a->link.out_direct = false;
}

TEST_F(WindowRequests, InvalidateWithAMessage) {
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {}));
  ASSERT_EQ(run(a, *pair.a, invalidate(Opcode::kSendWithInvalidate, mw.key)), WcStatus::kSuccess);
  EXPECT_FALSE(is_bound());
  const auto received = b.received(*pair.b);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].imm, mw.key);
  EXPECT_EQ(received[0].opcode, static_cast<uint8_t>(Opcode::kSendWithInvalidate));
}

// The worker died when it had changed the key, and before the request was complete.
TEST_F(WindowRequests, AreNotCarriedOutTwiceAfterACrash) {
  const auto die_in_the_middle = [](rdma::Qp& qp) {
    qp.block->mark.store(ipc::mark_word(ipc::Mark::kBegun, qp.block->sq_tail));
    qp.sender->adopted();
  };
  const ipc::SendWqe wanted = bind();
  die_in_the_middle(*pair.b);
  ASSERT_EQ(rdma::bind_window(*pair.b, wanted), WcStatus::kSuccess);
  ASSERT_EQ(run(b, *pair.b, wanted), WcStatus::kSuccess);
  EXPECT_TRUE(is_bound());
  die_in_the_middle(*pair.b);
  rdma::unbind_window(b.context, mw);
  ASSERT_EQ(run(b, *pair.b, invalidate(Opcode::kLocalInvalidate, mw.key)), WcStatus::kSuccess);
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {}));
  pair.a->block->mark_receive.store(pair.b->completed_receives());
  die_in_the_middle(*pair.a);
  rdma::unbind_window(b.context, mw);
  ASSERT_EQ(run(a, *pair.a, invalidate(Opcode::kSendWithInvalidate, mw.key)), WcStatus::kSuccess);
  EXPECT_EQ(b.received(*pair.b).size(), 1u);
  // What comes next has no such excuse.
  ASSERT_TRUE(b.post_receive(*pair.b, 2, {}));
  EXPECT_EQ(run(a, *pair.a, invalidate(Opcode::kSendWithInvalidate, mw.key)),
            WcStatus::kRemoteAccessError);
}

// A program can write the mark, too.
TEST_F(WindowRequests, DoNotSayThatAKeyIsGoneWhichIsNot) {
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {}));
  pair.a->block->mark_receive.store(pair.b->completed_receives());
  pair.a->block->mark.store(ipc::mark_word(ipc::Mark::kBegun, pair.a->block->sq_tail));
  pair.a->sender->adopted();
  EXPECT_EQ(run(a, *pair.a, invalidate(Opcode::kSendWithInvalidate, b_key)),
            WcStatus::kRemoteAccessError);
  EXPECT_TRUE(b.received(*pair.b).empty());
}

// Its library may have taken back what was in hand: see rdma::begin_epoch().
TEST_F(WindowRequests, AreCarriedOutAfterACheckpointOfAnotherOne) {
  for (const bool taken_back : {false, true}) {
    ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
    pair.a->link.out_direct = true;
    pair.a->block->busy.store(1);
    ASSERT_TRUE(b.post_send(*pair.b, invalidate(Opcode::kLocalInvalidate, mw.key), {}));
    ASSERT_TRUE(wait_for([&] { return !is_bound(); }));
    pair.b->sender->adopted();
    if (taken_back) pair.b->block->sq_tail.fetch_add(1);
    pair.a->block->busy.store(2);
    pair.b->sender->kick();
    const uint32_t posted = pair.b->block->sq_head;
    EXPECT_TRUE(wait_for([&] { return pair.b->block->sq_tail == posted; }));
    pair.a->link.out_direct = false;
    ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
    EXPECT_TRUE(is_bound());
    ASSERT_EQ(run(b, *pair.b, invalidate(Opcode::kLocalInvalidate, mw.key)), WcStatus::kSuccess);
    EXPECT_FALSE(is_bound());
  }
}

TEST_F(WindowRequests, DoNotInvalidateWhatIsNotThePeers) {
  ASSERT_EQ(run(b, *pair.b, bind()), WcStatus::kSuccess);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {}));
  EXPECT_EQ(run(a, *pair.a, invalidate(Opcode::kSendWithInvalidate, mr.key)),
            WcStatus::kRemoteAccessError);
  EXPECT_TRUE(is_bound());
  EXPECT_TRUE(b.received(*pair.b).empty());
  EXPECT_EQ(pair.b->state(), QpState::kErr);
}

}  // namespace
}  // namespace vrdma::transport
