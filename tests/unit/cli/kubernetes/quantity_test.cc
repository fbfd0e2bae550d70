#include "cli/kubernetes/dra/quantity.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace vrdma::cli::kubernetes {
namespace {

uint64_t number(std::string_view text) {
  const auto parsed = parse_quantity(text);
  EXPECT_TRUE(parsed) << text << ": " << parsed.error().message();
  return parsed.value_or(0);
}

TEST(Quantity, IsANumberWithASuffix) {
  EXPECT_EQ(number("0"), 0u);
  EXPECT_EQ(number("64"), 64u);
  EXPECT_EQ(number("+64"), 64u);
  EXPECT_EQ(number("64k"), 64000u);
  EXPECT_EQ(number("64Ki"), 65536u);
  EXPECT_EQ(number("10G"), 10'000'000'000u);
  EXPECT_EQ(number("1.5Gi"), 1610612736u);
  EXPECT_EQ(number(".5k"), 500u);
  EXPECT_EQ(number("2.k"), 2000u);
  EXPECT_EQ(number("2e3"), 2000u);
  EXPECT_EQ(number("2E3"), 2000u);
  EXPECT_EQ(number("2e+3"), 2000u);
  EXPECT_EQ(number("1E"), 1'000'000'000'000'000'000u);
  EXPECT_EQ(number("15Ei"), uint64_t{15} << 60);
  EXPECT_EQ(number("0e99"), 0u);
}

TEST(Quantity, IsRoundedUp) {
  EXPECT_EQ(number("1m"), 1u);
  EXPECT_EQ(number("1001m"), 2u);
  EXPECT_EQ(number("2000m"), 2u);
  EXPECT_EQ(number("1n"), 1u);
  EXPECT_EQ(number("1500000u"), 2u);
  EXPECT_EQ(number("0.1"), 1u);
  EXPECT_EQ(number("0.0"), 0u);
  EXPECT_EQ(number("1e-99"), 1u);
  EXPECT_EQ(number("0.3Ki"), 308u);
}

TEST(Quantity, FitsIn64Bits) {
  EXPECT_EQ(number("18446744073709551615"), UINT64_MAX);
  for (const char* const text : {"18446744073709551616", "16Ei", "19E", "1e20", "1e99",
                                 "99999999999999999999999999999999999999999999"}) {
    const auto parsed = parse_quantity(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), ERANGE) << text;
  }
}

TEST(Quantity, IsNothingElse) {
  for (const char* const text :
       {"",      "-1",    "+",     ".",     "k",   "1 k", "1kk",   "1ki", "1.2.3", "0x10", "1e",
        "1e1.5", "1e999", "1e++3", "1e+-3", "--1", "1\n", "1\xff", "e3",  "1Mi ",  "NaN",  "inf"}) {
    const auto parsed = parse_quantity(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), EINVAL) << text;
  }
  EXPECT_FALSE(parse_quantity(std::string_view("1\0", 2)));
}

}  // namespace
}  // namespace vrdma::cli::kubernetes
