#include "core/rdma/parking.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::World;
using test::wqe_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::QpState;
using verbs::WcStatus;

struct Parking : Rig {
  explicit Parking(const std::string& b_tenant = "blue") : Rig(b_tenant) {}
  World::Pair pair = world.connected();

  void send(rdma::Qp& from, test::Party& party, uint32_t key) {
    ASSERT_TRUE(party.post_send(from, wqe_of(Opcode::kSend), {{kBase, 8, key}}));
  }
  // A copy of all that a memory file contains.
  static base::Fd copy_of(const base::Fd& file, uint64_t size) {
    auto copy = base::make_memfd("copy", size);
    EXPECT_TRUE(copy);
    std::vector<uint8_t> bytes(1 << 16);
    for (off_t at = ::lseek(file.get(), 0, SEEK_DATA); at >= 0;
         at = ::lseek(file.get(), at, SEEK_DATA)) {
      const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), at);
      EXPECT_EQ(::pwrite(copy->get(), bytes.data(), static_cast<size_t>(got), at), got);
      at += got;
    }
    return std::move(*copy);
  }
};

TEST_F(Parking, PeersWaitForAsLongAsItTakes) {
  pair.a->attributes.timeout = 1;  // 8 us
  pair.a->attributes.retry_cnt = 0;
  pair.a->attributes.rnr_retry = 0;
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  rdma::park(b.context);
  send(*pair.a, a, a_key);
  settle();
  EXPECT_THAT(a.results(*pair.a), IsEmpty());
  EXPECT_TRUE(rdma::is_at_rest(b.context));
  rdma::resume(b.context);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_THAT(b.received(*pair.b), SizeIs(1));
}

TEST_F(Parking, ItsOwnRequestsWait) {
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  rdma::park(a.context);
  send(*pair.a, a, a_key);
  settle();
  EXPECT_THAT(a.results(*pair.a), IsEmpty());
  rdma::resume(a.context);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
}

TEST_F(Parking, DatagramsAreLost) {
  rdma::Qp* const from = add_datagrams(a);
  rdma::Qp* const to = add_datagrams(b);
  ASSERT_TRUE(b.post_receive(*to, 1, {{kBase, 4096, b_key}}));
  rdma::park(b.context);
  ASSERT_TRUE(a.post_send(*from, datagram_to("10.0.0.2", to->qpn), {{kBase, 8, a_key}}));
  EXPECT_THAT(statuses(*from, 1), ElementsAre(WcStatus::kSuccess));
  rdma::resume(b.context);
  settle();
  EXPECT_THAT(b.received(*to), IsEmpty());
}

TEST_F(Parking, TheProgramIsToldAfterwards) {
  pair.b->recv_cq->channel = b.channel;
  pair.b->recv_cq->bell->arm = ipc::arm_word(ipc::Arm::kNext);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  rdma::park(b.context);
  b.context.raise(verbs::Event::kPortActive, 1);
  pair.b->fail();
  EXPECT_THAT(b.events(), IsEmpty());
  EXPECT_THAT(b.wakes(), IsEmpty());
  rdma::resume(b.context);
  EXPECT_THAT(b.events(), SizeIs(1));
  EXPECT_THAT(b.wakes(), SizeIs(1));
}

// As if the program had come back as another process: what it shares are other files.
TEST_F(Parking, GoesOnWithOtherFiles) {
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  rdma::park(b.context);
  const base::Fd before = b.context.arena_fd.duplicate().value();
  base::Fd arena = copy_of(b.context.arena_fd, ipc::kQueueArenaSize);
  auto read_only = arena.reopen(O_RDONLY);
  ASSERT_TRUE(read_only);
  // What happens meanwhile is told in the new files.
  pair.b->attributes.state = static_cast<uint32_t>(QpState::kSqd);
  const auto exchanged = rdma::exchange_files(
      b.context, {std::move(arena), std::move(*read_only),
                  copy_of(b.context.bell_fd, ipc::kBellFileSize), std::move(b.context.events)});
  ASSERT_TRUE(exchanged) << exchanged.error().message();
  rdma::resume(b.context);
  EXPECT_EQ(pair.b->block->state.load(), static_cast<uint32_t>(QpState::kSqd));
  send(*pair.a, a, a_key);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  EXPECT_THAT(b.received(*pair.b), SizeIs(1));
  const auto* const shown = reinterpret_cast<const uint8_t*>(pair.b->inbox);
  const auto at = shown - b.context.arena->bytes();
  uint32_t head = 0;
  ASSERT_EQ(::pread(b.context.arena_fd.get(), &head, sizeof head, at), 4);
  EXPECT_EQ(head, 1u) << "the new file has it";
  ASSERT_EQ(::pread(before.get(), &head, sizeof head, at), 4);
  EXPECT_EQ(head, 0u) << "the old one does not";
}

// What it shares may have been written to disk already.
TEST_F(Parking, GetsReceivesBackAfterwards) {
  rdma::Srq& srq = *b.add_srq(8);
  ASSERT_TRUE(b.post_receive(srq, 3, {{kBase, 8, b_key}}));
  rdma::Receive receive;
  ASSERT_EQ(srq.claim(&receive), rdma::Outcome::kDone);
  rdma::park(b.context);
  srq.give_back(receive.slot);
  EXPECT_EQ(srq.block->returned_head.load(), 0u);
  EXPECT_EQ(srq.receives.claims->words()[receive.slot].load(), ipc::kClaimedByWorker);
  rdma::resume(b.context);
  EXPECT_EQ(srq.block->returned_head.load(), 1u);
  ASSERT_EQ(srq.claim(&receive), rdma::Outcome::kDone);
  EXPECT_EQ(receive.slot, 3u);
}

struct DirectParking : Parking {
  DirectParking() : Parking("red") {}
  static ipc::Link link(const rdma::Qp& qp) {
    return static_cast<ipc::Link>(qp.block->link.load());
  }
};

TEST_F(DirectParking, NobodyExecutesOnADirectLinkMeanwhile) {
  for (rdma::Context* const one : {&a.context, &b.context}) {
    ASSERT_EQ(link(*pair.a), ipc::Link::kDirect);
    ASSERT_EQ(link(*pair.b), ipc::Link::kDirect);
    rdma::park(*one);
    EXPECT_EQ(link(*pair.a), ipc::Link::kMediated);
    EXPECT_EQ(link(*pair.b), ipc::Link::kMediated);
    world.fabric.mediate(&world.a_device, rdma::Mediated::kPortDown, true);
    world.fabric.mediate(&world.a_device, rdma::Mediated::kPortDown, false);
    EXPECT_EQ(link(*pair.a), ipc::Link::kMediated) << "it is still parked";
    rdma::resume(*one);
  }
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
  EXPECT_EQ(link(*pair.b), ipc::Link::kDirect);
  rdma::park(a.context);
  rdma::park(b.context);
  rdma::resume(a.context);
  EXPECT_EQ(link(*pair.a), ipc::Link::kMediated) << "its peer is parked";
  rdma::resume(b.context);
  EXPECT_EQ(link(*pair.a), ipc::Link::kDirect);
}

TEST_F(DirectParking, HasNoRestWhileAProgramExecutes) {
  for (const rdma::Qp* const qp : {pair.a, pair.b}) {
    qp->block->busy = 7;  // it began before
    rdma::park(a.context);
    EXPECT_FALSE(rdma::is_at_rest(a.context));
    qp->block->busy = 8;
    EXPECT_TRUE(rdma::is_at_rest(a.context));
    rdma::resume(a.context);
  }
}

// Its library takes the end of its connection for the end of the daemon.
TEST_F(DirectParking, WhatTheProgramHasTakenBackIsNotInHand) {
  std::memcpy(a.memory(), "before..after...", 16);
  send(*pair.a, a, a_key);
  settle();
  ASSERT_FALSE(pair.a->sender->drained()) << "it waits for a receive";
  rdma::park(a.context);
  const uint32_t before = a.context.epoch;
  ASSERT_TRUE(rdma::begin_epoch(a.context, before + 1));
  EXPECT_EQ(a.context.arena->at<ipc::ArenaHeader>(0)->epoch.load(), before + 1);
  rdma::resume(a.context);
  auto& token = pair.a->block->token;
  uint32_t held = ipc::token_word(ipc::Token::kWorker, before);
  ASSERT_TRUE(token.compare_exchange_strong(held, static_cast<uint32_t>(ipc::Token::kClient)));
  pair.a->block->sq_tail.fetch_add(1);  // executed by the program
  settle();
  ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase + 8, 8, a_key}}));
  token = ipc::token_word(ipc::Token::kWorker, before + 1);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  ring(*pair.b);
  pair.a->sender->kick();
  EXPECT_TRUE(wait_for([&] { return pair.a->sender->drained(); }));
  EXPECT_EQ(std::memcmp(b.memory(), "after...", 8), 0);
  EXPECT_EQ(pair.a->block->sq_tail.load(), 2u);
}

TEST_F(DirectParking, WhatTheProgramDoesNotTakeBackIsDoneOnce) {
  send(*pair.a, a, a_key);
  settle();
  rdma::park(a.context);
  ASSERT_TRUE(rdma::begin_epoch(a.context, a.context.epoch + 1));
  rdma::resume(a.context);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase, 8, b_key}}));
  ring(*pair.b);
  EXPECT_THAT(statuses(*pair.a, 1), ElementsAre(WcStatus::kSuccess));
  settle();
  EXPECT_EQ(pair.a->block->sq_tail.load(), 1u);
}

TEST_F(DirectParking, RefusesAProgramThatHasGivenUp) {
  rdma::park(a.context);
  a.context.epoch = 3;
  a.context.arena->at<ipc::ArenaHeader>(0)->epoch = 0;
  EXPECT_EQ(rdma::begin_epoch(a.context, 4).error().code(), ESTALE);
}

TEST_F(Parking, RefusesWhatCannotComeBack) {
  EXPECT_EQ(rdma::parking_obstacle(a.context), "");
  a.context.exporter = 7;
  EXPECT_THAT(rdma::parking_obstacle(a.context), HasSubstr("ibv_import_device"));
  a.context.exporter = 0;
  a.context.xrcds.add(std::make_unique<rdma::Xrcd>());
  EXPECT_THAT(rdma::parking_obstacle(a.context), HasSubstr("XRC"));
}

}  // namespace
}  // namespace vrdma::transport
