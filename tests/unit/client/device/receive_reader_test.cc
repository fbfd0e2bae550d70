#include "client/device/datapath/receive_reader.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

namespace vrdma::client {
namespace {

constexpr uint32_t kDepth = 4;

TEST(ReceiveReader, OfNoRing) {
  ReceiveReader none;
  EXPECT_FALSE(none.stands());
  EXPECT_FALSE(none.stands(0));
  EXPECT_EQ(none.waiting(), 0u);
  none.rewind();
  EXPECT_FALSE(none.stands());
}

TEST(ReceiveReader, GoesThroughTheRing) {
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(64, ipc::recv_ring_bytes(kDepth)), &std::free);
  std::memset(memory.get(), 0, ipc::recv_ring_bytes(kDepth));
  auto* ring = static_cast<ipc::RecvRing*>(memory.get());
  ReceiveReader reader(ring, kDepth);
  EXPECT_EQ(reader.depth(), kDepth);
  for (uint32_t index = 0; index < 3 * kDepth; index += 2) {
    EXPECT_FALSE(reader.stands());
    for (uint32_t more = 0; more < 2; ++more) {
      EXPECT_FALSE(reader.stands(more));
      ipc::RecvEntry entry{};
      entry.byte_len = index + more;
      ipc::publish(ring, kDepth, index + more, entry);
    }
    EXPECT_TRUE(reader.stands(1));
    EXPECT_FALSE(reader.stands(2));
    EXPECT_EQ(reader.waiting(), 2u);
    for (uint32_t more = 0; more < 2; ++more) {
      ASSERT_TRUE(reader.stands());
      EXPECT_EQ(reader.next().byte_len, index + more);
      reader.advance();
    }
  }
  ipc::clear(ring, kDepth);
  reader.rewind();
  EXPECT_FALSE(reader.stands());
  ipc::publish(ring, kDepth, 0, ipc::RecvEntry{});
  EXPECT_TRUE(reader.stands());
}

}  // namespace
}  // namespace vrdma::client
