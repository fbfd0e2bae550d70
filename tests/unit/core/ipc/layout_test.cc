#include "core/ipc/layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/ipc/messages.h"

namespace vrdma::ipc {
namespace {

TEST(Layout, PartsOfTheQueueArenaDoNotOverlap) {
  EXPECT_GE(kKeyOffset, kKickOffset + kMaxQpSlots / 8);
  EXPECT_GE(kHeapOffset, kKeyOffset + uint64_t{kMaxKeys} * sizeof(KeyEntry));
  EXPECT_EQ(kHeapOffset % 4096, 0u);
  EXPECT_GT(kQueueArenaSize, kHeapOffset);
  EXPECT_EQ(kMemoryArenaSize % kWindowSize, 0u);
}

TEST(Layout, StridesHoldWhatTheyMust) {
  for (uint32_t sge = 1; sge <= kMaxSge; ++sge)
    for (uint32_t bytes = 0; bytes <= kMaxInline; bytes += 37) {
      const uint32_t stride = send_stride(sge, bytes);
      EXPECT_EQ(stride % 64, 0u);
      EXPECT_GE(stride, sizeof(SendWqe) + sge * sizeof(verbs::Sge));
      EXPECT_GE(stride, sizeof(SendWqe) + bytes);
      EXPECT_EQ(recv_stride(sge), sizeof(RecvWqe) + sge * sizeof(verbs::Sge));
    }
}

// Words of different writers are on different cache lines.
TEST(Layout, WritersDoNotShareLines) {
  const auto line = [](size_t offset) { return offset / 64; };
  EXPECT_NE(line(offsetof(QpBlock, sq_head)), line(offsetof(QpBlock, sq_tail)));
  EXPECT_NE(line(offsetof(QpBlock, sq_head)), line(offsetof(QpBlock, state)));
  EXPECT_NE(line(offsetof(QpBlock, rq_head)), line(offsetof(QpBlock, rq_waiter)));
  EXPECT_NE(line(offsetof(SrqBlock, head)), line(offsetof(SrqBlock, returned_head)));
  EXPECT_EQ(sizeof(CqBell) % 64, 0u);
  EXPECT_NE(line(offsetof(CqBell, arm)), line(offsetof(CqBell, groups)));
  EXPECT_NE(line(offsetof(CqBell, groups)), line(offsetof(CqBell, news)));
}

TEST(RecvRing, AnEntryStandsWhenItWasPublished) {
  constexpr uint32_t kDepth = 4;
  std::vector<uint64_t> memory((recv_ring_bytes(kDepth) + 64) / sizeof(uint64_t));
  auto* ring =
      reinterpret_cast<RecvRing*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  RecvEntry entry{};
  for (uint32_t index = 0; index < 3 * kDepth; ++index) {
    EXPECT_FALSE(stands(*ring, kDepth, index));
    entry.byte_len = index;
    publish(ring, kDepth, index, entry);
    EXPECT_TRUE(stands(*ring, kDepth, index));
    EXPECT_EQ(ring->entries()[index % kDepth].byte_len, index);
    EXPECT_EQ(head_of(*ring, kDepth), index + 1);
  }
  // The initiator died between the two stores.
  ring->head.store(3 * kDepth - 1);
  EXPECT_EQ(head_of(*ring, kDepth), 3 * kDepth);
  EXPECT_EQ(settle_head(ring, kDepth), 3 * kDepth);
  EXPECT_EQ(ring->head, 3 * kDepth);
  EXPECT_EQ(settle_head(ring, kDepth), 3 * kDepth);
  clear(ring, kDepth);
  EXPECT_EQ(head_of(*ring, kDepth), 0u);
  for (uint32_t index = 0; index < 4 * kDepth; ++index) EXPECT_FALSE(stands(*ring, kDepth, index));
}

TEST(Messages, FitTheirFixedSizes) {
  const Request request;
  const Reply reply;
  EXPECT_EQ(request.magic, kMagic);
  EXPECT_EQ(reply.version, kVersion);
  EXPECT_GE(sizeof request.bytes, sizeof(ModifyQpRequest));
  EXPECT_GE(sizeof reply.bytes, sizeof(GidsReply));
  EXPECT_GE(sizeof reply.bytes, sizeof(CreateQpReply));
  for (const uint8_t byte : request.bytes) EXPECT_EQ(byte, 0);
  for (const uint8_t byte : reply.bytes) EXPECT_EQ(byte, 0);
}

// The fields that such a daemon does not know are zero.
TEST(HelloReplies, OfADaemonThatStatesNoCapabilitiesMeanTheSoftParent) {
  Reply reply;
  reply.hello.vendor_part_id = 1;
  EXPECT_EQ(reply.hello.device().vendor_id, 0x027672u);
  EXPECT_EQ(reply.hello.device().max_inline, 512u);
  EXPECT_EQ(reply.hello.device().speed, static_cast<uint32_t>(verbs::LinkSpeed::kFdr10));
  reply.hello.capabilities = verbs::kSoftCapabilities;
  reply.hello.capabilities.vendor_id = 0x15b3;
  EXPECT_EQ(reply.hello.device().vendor_id, 0x15b3u);
}

TEST(HelloReplies, StateWhatTheRingsHold) {
  EXPECT_EQ(verbs::kSoftCapabilities.max_sge, kMaxSge);
  EXPECT_EQ(verbs::kSoftCapabilities.max_inline, kMaxInline);
  EXPECT_EQ(verbs::kSoftCapabilities.max_rd_atomic, kMaxRdAtomic);
}

}  // namespace
}  // namespace vrdma::ipc
