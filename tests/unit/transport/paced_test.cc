// Send queues of a device that may not be as fast as it can.
#include <algorithm>

#include "core/rdma/line.h"
#include "tests/unit/transport/rig.h"

namespace vrdma::transport {
namespace {

using test::gid_of;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using testing::Each;
using testing::IsEmpty;
using testing::SizeIs;
using verbs::Opcode;
using verbs::WcStatus;

// Admits as many as it was told to.
struct FakePace final : rdma::Pace {
  int allowed = 0;
  uint64_t bytes = 0, messages = 0;
  std::vector<rdma::Sender*> line;

  bool admit(rdma::Sender& sender) override {
    if (allowed > 0) return allowed-- > 0;
    if (std::find(line.begin(), line.end(), &sender) == line.end()) line.push_back(&sender);
    return false;
  }
  void spend(uint64_t more_bytes, uint64_t more_messages) override {
    bytes += more_bytes;
    messages += more_messages;
  }
  void leave(rdma::Sender& sender) override { std::erase(line, &sender); }
  void allow(int count) {
    allowed += count;
    for (rdma::Sender* sender : std::exchange(line, {})) sender->called();
  }
};

template <class Base>
struct PacedBase : Base {
  FakePace pace;
  World::Pair pair = this->world.connected();
  PacedBase() { this->world.a_device.pace = &pace; }
  ~PacedBase() override { this->world.a_device.pace = nullptr; }  // queues outlive it
  bool write(uint32_t length = 100) {
    return this->a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, kBase, this->b_key),
                             {{kBase, length, this->a_key}});
  }
};
struct Paced : PacedBase<Rig> {};

TEST_F(Paced, WaitUntilTheyAreCalled) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(write());
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 0u);
  pace.allow(2);
  ASSERT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 2; }));
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  EXPECT_EQ(pace.bytes, 200u);
  EXPECT_EQ(pace.messages, 2u);
  pair.a->sender->kick();  // a doorbell is no call
  settle();
  EXPECT_EQ(pair.a->block->sq_tail, 2u);
  pace.allow(1);
  EXPECT_THAT(statuses(*pair.a, 3), Each(WcStatus::kSuccess));
}

TEST_F(Paced, PayForLongMessagesPieceByPiece) {
  ASSERT_TRUE(write(3 * kTurnBytes));
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  for (uint64_t piece = 1; piece <= 3; ++piece) {
    EXPECT_EQ(pair.a->block->sq_tail, 0u);
    pace.allow(1);
    ASSERT_TRUE(wait_for([&] { return pace.bytes == piece * kTurnBytes; }));
  }
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(pace.messages, 1u);
}

TEST_F(Paced, PayForWhatTheyReadAndNotForWhatIsReadOrSentToThem) {
  pace.allow(1000);
  ASSERT_TRUE(
      a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaRead, kBase, b_key), {{kBase, 500, a_key}}));
  (void)statuses(*pair.a, 1);
  EXPECT_EQ(pace.bytes, 500u);
  for (const Opcode opcode : {Opcode::kRdmaRead, Opcode::kRdmaWrite}) {
    ASSERT_TRUE(b.post_send(*pair.b, rdma_wqe(opcode, kBase, a_key), {{kBase, 700, b_key}}));
  }
  (void)statuses(*pair.b, 2);
  EXPECT_EQ(pace.bytes, 500u);
}

TEST_F(Paced, PayForReachedMemoryToo) {
  pace.allow(1000);
  std::vector<uint8_t> own(1u << 20);
  const auto addr = reinterpret_cast<uint64_t>(own.data());
  const uint32_t key = a.register_memory(addr, own.size(), kAllAccess, ipc::Way::kReached);
  ASSERT_TRUE(a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, kBase, b_key),
                          {{addr, static_cast<uint32_t>(own.size()), key}}));
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(pace.bytes, own.size());
}

TEST_F(Paced, PayForEachCopyOfADatagram) {
  pace.allow(1000);
  test::Party::QpOptions options;
  options.type = verbs::QpType::kUd;
  rdma::Qp* from = world.add_qp(a, options);
  from->set_state(verbs::QpState::kRts);
  const auto group = gid_of("ff0e::1");
  for (int i = 0; i < 3; ++i) {
    rdma::Qp* member = world.add_qp(b, options);
    member->set_state(verbs::QpState::kRts);
    ASSERT_TRUE(world.fabric.attach(*member, group));
    ASSERT_TRUE(b.post_receive(*member, 0, {{kBase, 4096, b_key}}));
  }
  ipc::SendWqe wqe = wqe_of(Opcode::kSend);
  std::memcpy(wqe.ud.dgid, group.bytes.data(), 16);
  ASSERT_TRUE(a.post_send(*from, wqe, {{kBase, 300, a_key}}));
  EXPECT_THAT(statuses(*from, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(pace.bytes, 300u + 3 * 300);  // brought together once, and delivered
  EXPECT_EQ(pace.messages, 1u);
}

// What is lost of an unreliable message is not taken for the beginning of the next.
TEST_F(Paced, BeginTheNextMessageAnewWhenOneIsLost) {
  test::Party::QpOptions options;
  options.type = verbs::QpType::kUc;
  pair = world.connected(options, options);
  std::memset(a.memory(), 1, 3 * kTurnBytes);
  ASSERT_TRUE(write(3 * kTurnBytes));
  pace.allow(1);
  ASSERT_TRUE(wait_for([&] { return pace.bytes == kTurnBytes; }));
  world.fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, true);
  pace.allow(1);
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
  world.fabric.mediate(&world.b_device, rdma::Mediated::kPortDown, false);
  pace.allow(1000);
  std::memset(a.memory(), 2, 3 * kTurnBytes);
  ASSERT_TRUE(write(3 * kTurnBytes));
  EXPECT_THAT(statuses(*pair.a, 2), Each(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(b.memory(), a.memory(), 3 * kTurnBytes), 0);
}

// Between the steps of a message, keys may come to name other memory.
struct PacedReached : Paced {
  static constexpr uint64_t kLength = 1u << 20;
  std::vector<uint8_t> own = std::vector<uint8_t>(kLength);
  uint64_t addr = reinterpret_cast<uint64_t>(own.data());
  uint32_t key = a.register_memory(addr, kLength, kAllAccess, ipc::Way::kReached);
  PacedReached() {
    for (size_t i = 0; i < kLength; ++i) {
      own[i] = static_cast<uint8_t>(i * 11 + i / 251 + 1);
      a.memory()[i] = static_cast<uint8_t>(~own[i]);
    }
  }
  // The same key, for memory that is elsewhere.
  static void move_key(test::Party& party, uint32_t which, uint64_t to, ipc::Way way) {
    rdma::Region region = *party.context.key_record.find(which);
    region.addr = to;
    region.way = way;
    party.context.set_key(which, &region);
  }
  // Up to where the first slice was read, and the next step waits.
  void begin(uint32_t length) {
    ASSERT_TRUE(
        a.post_send(*pair.a, rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), {{addr, length, key}}));
    pace.allow(1);
    ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
    EXPECT_EQ(a.threads->counters().turns, 1u);
  }
};

TEST_F(PacedReached, MoveWhatWasRead) {
  begin(1000);
  move_key(b, b_key, kBase + 1, ipc::Way::kInPlace);
  pace.allow(1000);
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(b.memory(kBase + 1), own.data(), 1000), 0);
}

TEST_F(PacedReached, ReadAgainWhatFollowsASliceInPlace) {
  begin(kLength);
  move_key(a, key, kBase, ipc::Way::kInPlace);
  pace.allow(1);
  ASSERT_TRUE(wait_for([&] { return pace.bytes == kTurnBytes; }));
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  move_key(a, key, addr, ipc::Way::kReached);
  pace.allow(1000);
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
  EXPECT_EQ(std::memcmp(b.memory(), a.memory(), kTurnBytes), 0);
  EXPECT_EQ(std::memcmp(b.memory() + kTurnBytes, own.data() + kTurnBytes, kLength - kTurnBytes), 0);
}

TEST_F(Paced, LeaveTheLineWhenTheyFailOrGo) {
  ASSERT_TRUE(write());
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  pair.a->fail();
  EXPECT_TRUE(wait_for([&] { return token(*pair.a) == ipc::Token::kFree; }));
  a.context.destroy_qp(*pair.a);
  EXPECT_THAT(pace.line, IsEmpty());
  pace.allow(1);
  settle();
  EXPECT_EQ(pace.bytes, 0u);
}

// A line that nobody leaves until it is opened.
struct LinePace final : rdma::Pace {
  explicit LinePace(base::EventLoop& loop)
      : line(loop, [this] { return open ? base::Duration(0) : std::chrono::hours(1); }) {}
  bool open = true;
  int refused = 0;
  rdma::Line line;
  bool admit(rdma::Sender& sender) override {
    const bool admitted = line.admit(sender);
    refused += admitted ? 0 : 1;
    return admitted;
  }
  void spend(uint64_t, uint64_t) override {}
  void leave(rdma::Sender& sender) override { line.leave(sender); }
};

// Two waits at once: for a receive, and for their turn.
struct PacedWithoutReceives : Rig, testing::WithParamInterface<bool> {
  LinePace pace{*world.loop};
  World::Pair pair = world.connected();
  PacedWithoutReceives() { world.a_device.pace = &pace; }
  ~PacedWithoutReceives() override { world.a_device.pace = nullptr; }
  // A message waits for a receive. The sender looks for one again and enters the line.
  void wait_twice() {
    ASSERT_TRUE(a.post_send(*pair.a, wqe_of(Opcode::kSend), {{kBase, 8, a_key}}));
    ASSERT_TRUE(wait_for([&] { return pair.b->block->rq_waiter == 1; }));
    pace.open = false;
    ASSERT_TRUE(wait_for([&] { return pace.refused > 0; }));
  }
  void let_pass() {
    pace.open = true;
    if (GetParam())
      pace.line.dismiss();
    else
      pace.line.look_again();
  }
};
INSTANTIATE_TEST_SUITE_P(Line, PacedWithoutReceives, testing::Bool());

TEST_P(PacedWithoutReceives, GiveUp) {
  pair.a->attributes.rnr_retry = 1;
  pair.b->attributes.min_rnr_timer = 20;  // 10.24 ms
  wait_twice();
  let_pass();
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kRnrRetryExceeded));
}

// Its owner did not see that a message waits.
TEST_P(PacedWithoutReceives, FindOneThatWasPostedMeanwhile) {
  a_lane.set_fence_interval(std::chrono::milliseconds(20));
  (void)a_lane.fence_since(base::Clock::steady().now());
  wait_twice();
  ASSERT_TRUE(b.post_receive(*pair.b, 0, {{kBase, 8, b_key}}));
  let_pass();
  EXPECT_THAT(statuses(*pair.a, 1), Each(WcStatus::kSuccess));
}

struct TrustingRig : Rig {
  TrustingRig() : Rig("red") {}
};
struct LimitedQueues : PacedBase<TrustingRig> {};

TEST_F(LimitedQueues, KeepTheTokenUntilTheLimitEnds) {
  ASSERT_EQ(pair.a->block->link, static_cast<uint32_t>(ipc::Link::kDirect));
  world.fabric.mediate(&world.a_device, rdma::Mediated::kRate, true);
  ASSERT_TRUE(write());
  ASSERT_TRUE(wait_for([&] { return pace.line.size() == 1; }));
  ASSERT_TRUE(write());
  pair.a->block->token = static_cast<uint32_t>(ipc::Token::kAsked);
  pace.allow(1);
  ASSERT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 1; }));
  settle();
  EXPECT_NE(token(*pair.a), ipc::Token::kClient);
  world.fabric.mediate(&world.a_device, rdma::Mediated::kRate, false);
  pair.a->block->token = static_cast<uint32_t>(ipc::Token::kAsked);
  pace.allow(1);
  EXPECT_TRUE(wait_for([&] { return pair.a->block->sq_tail == 2; }));
}

}  // namespace
}  // namespace vrdma::transport
