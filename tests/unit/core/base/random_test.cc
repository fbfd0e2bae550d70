#include "core/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tests/unit/core/base/unpredictable.h"

namespace vrdma::base {
namespace {

std::vector<uint32_t> sample() {
  std::vector<uint32_t> numbers;
  for (int i = 0; i < test::kSample; ++i) numbers.push_back(random32());
  return numbers;
}

TEST(Random, CannotBePredicted) {
  std::vector<uint32_t> others;
  std::thread([&] { others = sample(); }).join();
  const std::vector<uint32_t> numbers = sample();
  test::expect_unpredictable(numbers, others, 32);
  test::expect_even_bits(numbers, 0, 31);
}

TEST(Random, StaysBelowABoundAndReachesIt) {
  int seen[3] = {};
  for (int i = 0; i < 3000; ++i) {
    const uint32_t random = random_below(3);
    ASSERT_LT(random, 3u);
    ++seen[random];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 6 * 26);
  EXPECT_EQ(random_below(1), 0u);
  uint32_t highest = 0;
  for (int i = 0; i < 64; ++i) highest = std::max(highest, random_below(~0u));
  EXPECT_GT(highest, 1u << 28);
}

}  // namespace
}  // namespace vrdma::base
