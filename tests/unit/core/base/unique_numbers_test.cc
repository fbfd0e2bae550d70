#include "core/base/unique_numbers.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/core/base/unpredictable.h"

namespace vrdma::base {
namespace {

TEST(UniqueNumbers, ComeAgainOnlyAfterAllOthers) {
  constexpr uint32_t kAll = 1u << 16;
  UniqueNumbers numbers(16);
  std::vector<bool> seen(kAll);
  for (uint32_t i = 0; i < kAll; ++i) {
    const uint32_t number = numbers.next();
    ASSERT_LT(number, kAll);
    ASSERT_FALSE(seen[number]);
    seen[number] = true;
  }
}

TEST(UniqueNumbers, AreUnpredictable) {
  UniqueNumbers one(24), other(24);
  std::vector<uint32_t> numbers, others;
  for (int i = 0; i < test::kSample; ++i) {
    numbers.push_back(one.next());
    others.push_back(other.next());
  }
  test::expect_unpredictable(numbers, others, 24);
  test::expect_even_bits(numbers, 0, 23);
}

TEST(UniqueNumbers, TakeAllOf32Bits) {
  UniqueNumbers numbers(32);
  uint32_t ones = 0, zeros = ~0u;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t number = numbers.next();
    ones |= number;
    zeros &= number;
  }
  EXPECT_EQ(ones, ~0u);
  EXPECT_EQ(zeros, 0u);
}

}  // namespace
}  // namespace vrdma::base
