// Datagrams of a guest's programs and of its kernel's connection manager.
#include <vector>

#include "tests/unit/pvrdma/function/data.h"

namespace vrdma::pvrdma {
namespace {

TEST_F(Data, DatagramsHaveAnAddressEach) {
  const QueuePair c = create_qp(pd, cq, 16, 2, IBV_QPT_UD),
                  d = create_qp(pd, cq, 16, 2, IBV_QPT_UD);
  for (const QueuePair* one : {&c, &d}) {
    EXPECT_TRUE(modify(*one, IBV_QPS_INIT));
    EXPECT_TRUE(modify(*one, IBV_QPS_RTR));
    EXPECT_TRUE(modify(*one, IBV_QPS_RTS));
  }
  ASSERT_TRUE(put_receive(d, 9, all(to, 500)));
  ring_receives(d);
  SendEntry entry = request(SendOpcode::kSend, 8);
  entry.ud.qpn = d.qpn;
  entry.ud.address.gid_index = 0;
  entry.ud.address.dgid[15] = 2;
  ASSERT_TRUE(put_send(c, entry, all(from, 100)));
  ring_sends(c);
  go_on();
  const auto receive = poll(cq);
  ASSERT_TRUE(receive);
  EXPECT_EQ(140u, receive->byte_len);
  EXPECT_EQ(c.qpn, receive->src_qp);
  EXPECT_EQ(kHasGrh, receive->flags);
  EXPECT_EQ(0u, poll(cq)->status);
  EXPECT_EQ(1u, verbs.address_handles());
  // What no datagram can be: the request fails, and the queue pair.
  entry.opcode = static_cast<uint32_t>(SendOpcode::kWrite);
  ASSERT_TRUE(put_send(c, entry, all(from, 100)));
  ring_sends(c);
  go_on();
  EXPECT_EQ(uint32_t{IBV_WC_LOC_QP_OP_ERR}, poll(cq)->status);
}

// Of users' programs, and of the kernel's connection manager.
class Datagrams : public Data, public ::testing::WithParamInterface<int> {
 protected:
  Datagrams() {
    for (QueuePair* const one : {&c, &d}) {
      *one = create_qp(pd, cq, 16, 2, static_cast<uint32_t>(GetParam()));
      EXPECT_TRUE(modify(*one, IBV_QPS_INIT));
      EXPECT_TRUE(modify(*one, IBV_QPS_RTR));
      EXPECT_TRUE(modify(*one, IBV_QPS_RTS));
    }
  }
  void post(const QueuePair& by, uint64_t wr_id, uint8_t source, uint32_t flags = kSignaled,
            uint8_t last = 2) {
    SendEntry entry = request(SendOpcode::kSend, wr_id);
    entry.flags = flags;
    entry.ud.qpn = verbs.find(d.qpn)->ibv.qp_num;
    entry.ud.address.gid_index = source;
    entry.ud.address.dgid[15] = last;
    ASSERT_TRUE(put_send(by, entry, all(from, 100)));
    ring_sends(by);
  }
  void receives(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) ASSERT_TRUE(put_receive(d, i, all(to, 500)));
    ring_receives(d);
  }
  // What has ended, in the order of each queue pair; all with success.
  [[nodiscard]] std::vector<uint64_t> ended(const QueuePair& by) {
    go_on();
    std::vector<uint64_t> ids;
    for (auto entry = poll(cq); entry; entry = poll(cq)) {
      EXPECT_EQ(0u, entry->status) << entry->wr_id;
      if (entry->qp == by.handle) ids.push_back(entry->wr_id);
    }
    return ids;
  }
  [[nodiscard]] uint32_t state_of(const QueuePair& one) {
    EXPECT_TRUE(execute(Command::kQueryQp, QueryQp{one.handle, IBV_QP_STATE}));
    return answer().attributes.qp_state;
  }
  QueuePair c, d;
};

// A datagram may get lost, and a queue pair that fails for it would end rdma_cm in the guest until
// its driver is loaded again.
TEST_P(Datagrams, WithoutASourceAreLost) {
  receives(50, 8);
  post(c, 1, 0);
  post(c, 2, 3);  // no such GID
  post(c, 3, 0);
  post(c, 4, 3, 0);
  post(c, 5, 3);
  EXPECT_EQ((std::vector<uint64_t>{1, 2, 3, 5}), ended(c));
  EXPECT_EQ(6u, verbs.find(d.qpn)->receives.size());
  EXPECT_EQ(uint32_t{IBV_QPS_RTS}, state_of(c));
  EXPECT_EQ(3u, function->counts().requests_refused);
  // The guest takes its address away, and gets it again.
  ASSERT_TRUE(execute(Command::kDestroyBind, DestroyBind{0, {}}));
  for (uint64_t i = 6; i < 40; ++i) {  // more than the ring has
    post(c, i, 0);
    EXPECT_EQ((std::vector<uint64_t>{i}), ended(c));
  }
  bind(0, gid_of(1));
  post(c, 40, 0);
  EXPECT_EQ((std::vector<uint64_t>{40}), ended(c));
  EXPECT_EQ(5u, verbs.find(d.qpn)->receives.size());
}

// The end of a lost one waits for the completions before it.
TEST_P(Datagrams, ALostOneEndsInItsTurn) {
  post(c, 1, 0);
  post(c, 2, 0, 0);
  post(c, 3, 3);
  EXPECT_FALSE(poll(cq));
  EXPECT_EQ((std::vector<uint64_t>{1, 3}), ended(c));
  // It may get its address meanwhile.
  receives(50, 8);
  post(c, 4, 0);
  post(c, 5, 3);
  bind(3, gid_of(2));
  EXPECT_EQ((std::vector<uint64_t>{4, 5}), ended(c));
  EXPECT_EQ(6u, verbs.find(d.qpn)->receives.size());
}

TEST_P(Datagrams, InErrorAllAreFlushed) {
  ASSERT_TRUE(modify(c, IBV_QPS_ERR));
  post(c, 1, 0, 0);
  post(c, 2, 3);
  post(c, 3, 3, 0);
  go_on();
  for (uint64_t i = 1; i < 4; ++i) {
    const auto entry = poll(cq);
    ASSERT_TRUE(entry);
    EXPECT_EQ(uint32_t{IBV_WC_WR_FLUSH_ERR}, entry->status);
  }
}

// The quota of address handles is used by destinations of before, also of other domains.
TEST_P(Datagrams, OldAddressesMakeRoom) {
  receives(50, 8);
  verbs.most_address_handles = 2;
  for (uint8_t i = 0; i < 5; ++i) post(c, i, 0, kSignaled, i);
  EXPECT_EQ((std::vector<uint64_t>{0, 1, 2, 3, 4}), ended(c));
  EXPECT_EQ(3u, verbs.find(d.qpn)->receives.size());
  EXPECT_EQ(2u, verbs.address_handles());
  const QueuePair other = create_qp(create_pd(), cq, 16, 2, IBV_QPT_UD);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    EXPECT_TRUE(modify(other, state));
  post(other, 7, 0);
  EXPECT_EQ((std::vector<uint64_t>{7}), ended(other));
  EXPECT_EQ(2u, verbs.find(d.qpn)->receives.size());
  EXPECT_EQ(2u, verbs.address_handles());
  // None can be had.
  verbs.most_address_handles = 0;
  post(other, 8, 0, kSignaled, 9);
  EXPECT_EQ((std::vector<uint64_t>{8}), ended(other));
  EXPECT_EQ(uint32_t{IBV_QPS_RTS}, state_of(other));
  EXPECT_EQ(2u, verbs.find(d.qpn)->receives.size());
}

INSTANTIATE_TEST_SUITE_P(Types, Datagrams, ::testing::Values(int{IBV_QPT_UD}, 1));

}  // namespace
}  // namespace vrdma::pvrdma
