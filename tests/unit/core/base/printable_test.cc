#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Printable, shows_what_is_not_printable_by_its_number) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable(" eth0~"), " eth0~");
  EXPECT_EQ(printable("e\xff\x1b[2J\n\x7f"), "e\\xff\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(printable("\xc3\xa9"), "\\xc3\\xa9");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(std::string(10'000, 'x')), std::string(kMostPrinted, 'x') + "...");
  EXPECT_EQ(printable("/dev-disk\\x2d1"), "/dev-disk\\x2d1") << "as systemd names a group";
}

}  // namespace
}  // namespace vrdma::base
