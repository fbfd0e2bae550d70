#include "cli/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace vrdma::cli {
namespace {

TEST(Table, aligns_words_left_and_numbers_right) {
  Table table({{"NAME"}, {"USED", Table::Align::kRight}, {"DETAIL"}});
  table.add({"red0", "7", "x"});
  table.add({"a-long-name", "123456", ""});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(),
            "NAME           USED  DETAIL\n"
            "red0              7  x\n"
            "a-long-name  123456  -\n");
}

TEST(Table, of_nothing_is_its_header) {
  std::ostringstream out;
  Table({{"NAME"}, {"MTU", Table::Align::kRight}}).print(out);
  EXPECT_EQ(out.str(), "NAME  MTU\n");
}

}  // namespace
}  // namespace vrdma::cli
