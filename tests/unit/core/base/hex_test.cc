#include "core/base/hex.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Hex, WritesTwoDigitsOfEachByte) {
  EXPECT_EQ(hex_of({}), "");
  EXPECT_EQ(hex_of(std::string_view("\x00\x0f\xa5\xff", 4)), "000fa5ff");
}

TEST(Hex, ReadsWhatItWrites) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(bytes_of_hex(hex_of(all)), all);
  EXPECT_EQ(bytes_of_hex(""), "");
}

TEST(Hex, ReadsNothingElse) {
  for (const char* wrong : {"0", "abc", "0x", "0A", "g0", " 0", "-1", "0\n"})
    EXPECT_EQ(bytes_of_hex(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace vrdma::base
