#include "core/base/endian.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Endian, BigEndianHasTheHighByteFirst) {
  struct Wire {
    uint8_t before;
    ub16 two;
    ub32 four;
    ub64 eight;
  };
  static_assert(sizeof(Wire) == 15 && alignof(Wire) == 1);
  Wire wire{};
  wire.two = 0x0102;
  wire.four = 0x01020304;
  wire.eight = 0x0102030405060708;
  const uint8_t bytes[] = {0, 1, 2, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(std::memcmp(&wire, bytes, sizeof bytes), 0);
  EXPECT_EQ(wire.two, 0x0102);
  EXPECT_EQ(wire.four, 0x01020304u);
  EXPECT_EQ(wire.eight, 0x0102030405060708u);
}

TEST(Endian, TwentyFourBitsCutOffWhatIsAbove) {
  static_assert(sizeof(ub24) == 3 && alignof(ub24) == 1);
  const ub24 three = 0xff010203;
  const uint8_t bytes[] = {1, 2, 3};
  EXPECT_EQ(std::memcmp(&three, bytes, sizeof bytes), 0);
  EXPECT_EQ(three, 0x010203u);
}

TEST(Endian, LittleEndianHasTheLowByteFirst) {
  const ul32 four = 0x01020304;
  const uint8_t bytes[] = {4, 3, 2, 1};
  EXPECT_EQ(std::memcmp(&four, bytes, sizeof bytes), 0);
  EXPECT_EQ(four, 0x01020304u);
  EXPECT_EQ(ul16{0xfffe}, 0xfffe);
  EXPECT_EQ(ul64{~uint64_t{1}}, ~uint64_t{1});
}

}  // namespace
}  // namespace vrdma::base
