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

TEST_F(Parking, RefusesWhatCannotComeBack) {
  EXPECT_EQ(rdma::parking_obstacle(a.context), "");
  pair.a->link.maps_peer = 7;
  EXPECT_THAT(rdma::parking_obstacle(a.context), HasSubstr("--no-direct"));
  pair.a->link.maps_peer = 0;
  a.context.exporter = 7;
  EXPECT_THAT(rdma::parking_obstacle(a.context), HasSubstr("ibv_import_device"));
  a.context.exporter = 0;
  a.context.xrcds.add(std::make_unique<rdma::Xrcd>());
  EXPECT_THAT(rdma::parking_obstacle(a.context), HasSubstr("XRC"));
}

}  // namespace
}  // namespace vrdma::transport
