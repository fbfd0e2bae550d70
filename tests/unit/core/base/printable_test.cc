#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Printable, shows_what_is_not_printable_by_its_number) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable(" eth0~"), " eth0~");
  EXPECT_EQ(printable("e\xff\x1b[2J\n\x7f"), "e\\xff\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable(std::string(10'000, 'x')), std::string(kMostPrinted, 'x') + "...");
  EXPECT_EQ(printable("/dev-disk\\x2d1"), "/dev-disk\\x2d1") << "as systemd names a group";
}

TEST(Printable, shows_characters_of_utf8_as_they_are) {
  for (const char* text :
       {"\xc3\xa9", "Z\xc3\xbcrich", "\xe2\x82\xac", "\xf0\x9f\x9a\x80", "\xc2\xa0"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut off";
  EXPECT_EQ(printable("\xc3z"), "\\xc3z");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "longer than it need be";
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable("\x80\xbf\xf8"), "\\x80\\xbf\\xf8");
}

TEST(Printable, knows_utf8) {
  for (const char* text : {"", "eth0\n", "Z\xc3\xbcrich", "\xf0\x9f\x9a\x80", "\xe2\x80\xae"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80"})
    EXPECT_FALSE(is_utf8(text)) << printable(text);
}

TEST(Printable, shows_what_would_disturb_the_line_by_its_number) {
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "CSI, as ESC [";
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae") << "right-to-left override";
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8") << "line separator";
  EXPECT_EQ(printable("\xe2\x81\xa6"), "\\xe2\\x81\\xa6") << "isolate";
  EXPECT_EQ(printable("\xef\xbb\xbf"), "\\xef\\xbb\\xbf");
}

}  // namespace
}  // namespace vrdma::base
