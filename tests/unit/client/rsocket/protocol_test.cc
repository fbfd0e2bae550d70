// The flow control of stream sockets over RDMA, and their wire protocol.
#include "client/rsocket/protocol.h"

#include <gtest/gtest.h>

#include <random>

namespace vrdma::client {
namespace {

TEST(RsMessage, TypeAndData) {
  EXPECT_EQ(rs_message(RsMessage::kData, 1234), 1234U);
  EXPECT_EQ(rs_message(RsMessage::kCredit, 5), 0x80000005U);
  EXPECT_EQ(rs_message(RsMessage::kIomap, 1), 0xc0000001U);
  EXPECT_EQ(rs_message(RsMessage::kControl, 2), 0xe0000002U);
  EXPECT_EQ(rs_type(0xe0000002U), RsMessage::kControl);
  EXPECT_EQ(rs_data(0x80000005U), 5U);
}

TEST(RsHello, GoldenBytes) {
  RsHello hello;
  hello.credits = 384;
  hello.iomaps = 3;
  hello.list = {0x1122334455667788, 0xaabbccdd, 2};
  hello.buffer = {0x99, 7, 65536};
  const auto bytes = hello.encode();
  const std::array<uint8_t, 40> expected{1,    2,    1,    0x80, 0,    0,    0,    3,    0x11, 0x22,
                                         0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xaa, 0xbb, 0xcc, 0xdd,
                                         0,    0,    0,    2,    0,    0,    0,    0,    0,    0,
                                         0,    0x99, 0,    0,    0,    7,    0,    1,    0,    0};
  EXPECT_EQ(bytes, expected);
  const auto again = RsHello::decode(bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->credits, 384);
  EXPECT_EQ(again->list.address, 0x1122334455667788U);
  EXPECT_EQ(again->buffer.length, 65536U);
}

TEST(RsHello, RefusesWhatNoPeerSends) {
  RsHello hello;
  hello.credits = 1;
  hello.list.length = 2;
  auto bytes = hello.encode();
  EXPECT_TRUE(RsHello::decode(bytes));
  EXPECT_FALSE(RsHello::decode(std::span(bytes).first(39)));
  EXPECT_FALSE(RsHello::decode({}));
  auto version = bytes;
  version[0] = 2;
  EXPECT_FALSE(RsHello::decode(version));
  auto order = bytes;
  order[1] ^= 1;
  EXPECT_FALSE(RsHello::decode(order));
  auto credits = bytes;
  credits[3] = 0;
  EXPECT_FALSE(RsHello::decode(credits));
  auto list = bytes;
  list[23] = 0;
  EXPECT_FALSE(RsHello::decode(list));
}

TEST(RsIomap, Scale) {
  for (const uint32_t exact : {0U, 1U, 127U, 128U, 256U, 512U, 32512U})
    EXPECT_EQ(rs_from_scale(rs_to_scale(exact)), exact);
  EXPECT_EQ(rs_from_scale(rs_to_scale(1000)), 768U);
  EXPECT_EQ(rs_from_scale(rs_to_scale(1'000'000)), 32512U);
}

TEST(SendCredits, RunOutAndWrap) {
  SendCredits credits(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(credits.any());
    credits.use();
  }
  EXPECT_FALSE(credits.any());
  for (uint32_t sent = 3; sent < 200'000; ++sent) {
    credits.extend(sent + 1);
    EXPECT_TRUE(credits.any());
    credits.use();
    EXPECT_FALSE(credits.any());
  }
}

TEST(SendRing, PiecesDoNotOverlap) {
  SendRing ring(100);
  EXPECT_EQ(ring.space(), 100U);
  EXPECT_EQ(ring.put(60), 0U);
  EXPECT_EQ(ring.space(), 40U);
  EXPECT_EQ(ring.put(20), 60U);
  EXPECT_EQ(ring.space(), 0U) << "less than a quarter is free";
  ring.release(60);
  EXPECT_EQ(ring.space(), 20U) << "up to the end";
  EXPECT_EQ(ring.put(20), 80U);
  EXPECT_EQ(ring.space(), 60U);
  EXPECT_EQ(ring.put(60), 0U);
  EXPECT_EQ(ring.space(), 0U);
}

TEST(ReceiveRing, TakesNoMoreThanWasPublished) {
  ReceiveRing ring(100, 8);
  EXPECT_FALSE(ring.put(51));
  EXPECT_TRUE(ring.put(50));
  EXPECT_FALSE(ring.put(1));
  EXPECT_EQ(ring.grant().length, 50U);
  EXPECT_TRUE(ring.put(1));
}

TEST(ReceiveRing, TakesNoMoreMessagesThanItHasPlacesFor) {
  ReceiveRing ring(100, 2);
  EXPECT_TRUE(ring.put(1));
  EXPECT_TRUE(ring.put(1));
  EXPECT_FALSE(ring.put(1));
  ring.take(1);
  EXPECT_TRUE(ring.put(1));
}

TEST(ReceiveRing, GivesCreditsForMessagesThatWereRead) {
  ReceiveRing ring(100, 4);
  (void)ring.grant();
  EXPECT_FALSE(ring.owes());
  ASSERT_TRUE(ring.put(2));
  ASSERT_TRUE(ring.put(2));
  EXPECT_FALSE(ring.owes());
  ring.take(3);
  EXPECT_FALSE(ring.owes()) << "the second is not read to its end";
  ring.take(1);
  ASSERT_TRUE(ring.owes());
  const auto grant = ring.grant();
  EXPECT_EQ(grant.credits, 6U);
  EXPECT_EQ(grant.length, 0U);
  EXPECT_FALSE(ring.owes());
  ring.skip();
  ring.skip();
  EXPECT_TRUE(ring.owes());
}

// A random sender and receiver: each byte arrives where it is read, none is overwritten, and
// neither side blocks forever.
TEST(ReceiveRing, CarriesAStream) {
  constexpr uint32_t kSize = 64;
  constexpr uint16_t kMessages = 8;
  std::mt19937 random(7);
  std::vector<uint8_t> memory(kSize);
  ReceiveRing ring(kSize, kMessages);
  SendCredits credits(kMessages);
  std::vector<std::pair<uint32_t, uint32_t>> areas{{0, kSize / 2}};  // offset, length
  uint8_t sent = 0, read = 0;
  uint32_t bytes = 0;
  for (int step = 0; step < 400'000; ++step) {
    while (ring.owes()) {
      const auto grant = ring.grant();
      credits.extend(grant.credits);
      if (grant.length != 0) areas.emplace_back(grant.offset, grant.length);
      ASSERT_LE(areas.size(), kRsAreas);
    }
    const auto some = static_cast<uint32_t>(random() % 20 + 1);
    if (random() % 2 == 0) {
      if (areas.empty() || !credits.any()) {
        ASSERT_GT(ring.filled(), 0U) << "neither side can proceed";
        continue;
      }
      auto& [offset, left] = areas.front();
      const uint32_t length = std::min(some, left);
      for (uint32_t i = 0; i < length; ++i) memory[offset + i] = sent++;
      credits.use();
      ASSERT_TRUE(ring.put(length));
      offset += length;
      left -= length;
      if (left == 0) areas.erase(areas.begin());
    } else {
      const uint32_t length = std::min(some, ring.piece());
      for (uint32_t i = 0; i < length; ++i) ASSERT_EQ(memory[ring.offset() + i], read++);
      ring.take(length);
      bytes += length;
    }
  }
  EXPECT_GT(bytes, 100'000U);
}

}  // namespace
}  // namespace vrdma::client
