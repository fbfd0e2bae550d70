#include "cli/quota_argument.h"

#include <gtest/gtest.h>

namespace vrdma::cli {
namespace {

using Quota = std::vector<std::pair<std::string, uint64_t>>;

std::string complaint(const std::string& text) {
  const auto parsed = parse_quota(text);
  return parsed ? "" : parsed.error().message();
}

TEST(QuotaArgument, numbers_have_suffixes) {
  const auto quota = parse_quota("qp=64,mr=2k,a=3M,mr_bytes=16g,t=1T,none=0,all=max");
  ASSERT_TRUE(quota) << quota.error().message();
  EXPECT_EQ(*quota, (Quota{{"qp", 64},
                           {"mr", 2048},
                           {"a", 3 << 20},
                           {"mr_bytes", uint64_t{16} << 30},
                           {"t", uint64_t{1} << 40},
                           {"none", 0},
                           {"all", ~uint64_t{0}}}));
}

TEST(QuotaArgument, what_does_not_fit_the_grammar_is_named) {
  EXPECT_EQ(complaint(""), "'' is not a quota such as qp=64");
  EXPECT_EQ(complaint("qp"), "'qp' is not a quota such as qp=64");
  EXPECT_EQ(complaint("=3"), "'=3' is not a quota such as qp=64");
  EXPECT_EQ(complaint("qp=1,"), "'' is not a quota such as qp=64");
  EXPECT_EQ(complaint("qp=1,qp=2"), "quota qp is given twice");
  for (const char* number : {"", "x", "-1", "+1", "1.5", "1kk", "1x", "k", " 1", "0x10", "MAX"})
    EXPECT_EQ(complaint(std::string("qp=") + number),
              "quota qp: '" + std::string(number) + "' is not a number such as 64, 16k or max");
}

TEST(QuotaArgument, ends_with_64_bits) {
  EXPECT_EQ(complaint("qp=18446744073709551615"), "");
  EXPECT_EQ(complaint("qp=18446744073709551616"),
            "quota qp: '18446744073709551616' is beyond 64 bits");
  EXPECT_EQ(complaint("qp=16777215t"), "");
  EXPECT_EQ(complaint("qp=16777216t"), "quota qp: '16777216t' is beyond 64 bits");
}

TEST(QuotaArgument, limits_print_as_they_are_read) {
  EXPECT_EQ(limit_text(0), "0");
  EXPECT_EQ(limit_text(65536), "65536");
  EXPECT_EQ(limit_text(~uint64_t{0}), "max");
}

}  // namespace
}  // namespace vrdma::cli
