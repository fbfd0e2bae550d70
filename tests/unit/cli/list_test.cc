#include "cli/list.h"

#include <gtest/gtest.h>

#include <sstream>

namespace vrdma::cli {
namespace {

const Columns kFew{{"NAME"},
                   {"USED", Column::kRight},
                   {"STATE", Column::kState},
                   {"LABELS", Column::kCut},
                   {"WHO", Column::kIfAny},
                   {"ID", Column::kExtra}};

std::string printed(const Style& style, const std::vector<std::vector<std::string>>& rows) {
  List list(kFew, style);
  for (const auto& row : rows) list.add(row);
  std::ostringstream out;
  list.print(out);
  return out.str();
}

TEST(List, aligns_words_left_and_numbers_right) {
  EXPECT_EQ(printed({}, {{"red0", "7", "ACTIVE", "a=1", "", "1"},
                         {"a-long-name", "123456", "DOWN", "", "", "2"}}),
            "NAME           USED  STATE   LABELS\n"
            "red0              7  ACTIVE  a=1\n"
            "a-long-name  123456  DOWN    -\n");
}

TEST(List, of_nothing_is_its_header) { EXPECT_EQ(printed({}, {}), "NAME  USED  STATE  LABELS\n"); }

TEST(List, prints_the_columns_that_are_asked_for_in_that_order) {
  const std::vector<std::vector<std::string>> rows{{"a", "7", "LOST", "", "shop/web", "41"}};
  EXPECT_EQ(printed({}, rows),
            "NAME  USED  STATE  LABELS  WHO\n"
            "a        7  LOST   -       shop/web\n");
  EXPECT_EQ(printed({.columns = {"id", "Name"}}, rows), "ID  NAME\n41  a\n");
  EXPECT_EQ(printed({.columns = {"WHO"}}, {}), "WHO\n");
}

TEST(List, cuts_and_colours_only_on_a_terminal) {
  const std::string labels(100, 'l');
  const std::vector<std::vector<std::string>> rows{{"a", "7", "ACTIVE", labels, "", ""}};
  EXPECT_NE(printed({}, rows).find(labels), std::string::npos);
  const std::string narrow = printed({.width = 40, .colours = true}, rows);
  EXPECT_EQ(narrow.find(labels), std::string::npos);
  EXPECT_NE(narrow.find("  lll"), std::string::npos);
  EXPECT_NE(narrow.find("\033[32mACTIVE\033[0m"), std::string::npos);
  EXPECT_EQ(printed({.width = 40}, rows).find('\033'), std::string::npos);
  const std::string wide = printed({.width = 200}, rows);
  EXPECT_NE(wide.find(labels), std::string::npos);
}

TEST(Columns, are_found_in_either_case) {
  EXPECT_EQ(*find_columns(kFew, {"id", "NAME"}), (std::vector<size_t>{5, 0}));
  EXPECT_EQ(find_columns(kFew, {"frob"}).error().message(),
            "there is no column 'frob'; there are NAME, USED, STATE, LABELS, WHO, ID");
  EXPECT_EQ(find_columns(kFew, {"id", "ID"}).error().message(), "column ID is named twice");
}

// A script that names a column must not get another one.
TEST(Columns, have_one_name_each) {
  for (const Columns* columns :
       {&kVdevColumns, &kQuotaColumns, &kCgroupColumns, &kGidColumns, &kClassColumns,
        &kParentColumns, &kBudgetColumns, &kFabricColumns, &kConnectionColumns, &kQueuePairColumns,
        &kCounterColumns, &kTopColumns}) {
    std::vector<std::string> names;
    for (const Column& one : *columns) names.emplace_back(one.name);
    EXPECT_TRUE(find_columns(*columns, names)) << names_of(*columns);
  }
}

}  // namespace
}  // namespace vrdma::cli
