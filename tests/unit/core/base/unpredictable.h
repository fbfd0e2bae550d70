// Statistical tests that a number cannot be predicted from those before it. With random numbers
// they fail about once in ten million runs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace vrdma::test {

constexpr int kSample = 4096;

// `numbers` and `others`: kSample numbers each from two independent sources, in the order of their
// allocation. All are below 2^bits.
inline void expect_unpredictable(const std::vector<uint32_t>& numbers,
                                 const std::vector<uint32_t>& others, int bits) {
  ASSERT_EQ(numbers.size(), static_cast<size_t>(kSample));
  ASSERT_EQ(others.size(), static_cast<size_t>(kSample));
  const uint64_t range = uint64_t{1} << bits;
  EXPECT_EQ(std::set<uint32_t>(numbers.begin(), numbers.end()).size(), numbers.size())
      << "two numbers are equal";
  std::map<uint32_t, int> differences;
  uint32_t rising = 0, same = 0, near = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    same += numbers[i] == others[i];
    if (i == 0) continue;
    const auto difference = static_cast<uint32_t>((numbers[i] - numbers[i - 1]) & (range - 1));
    ++differences[difference];
    near += difference < range / 256 || difference >= range - range / 256;
    rising += numbers[i] > numbers[i - 1];
  }
  EXPECT_LE(same, 8u) << "two sequences run in parallel";
  for (const auto& [difference, count] : differences)
    EXPECT_LE(count, 8) << "an increment of " << difference << " recurs";
  // Half rise; the variance of the count of rises in a random sequence is (n + 1) / 12.
  EXPECT_NEAR(rising, kSample / 2, 6 * std::sqrt(kSample / 12.0)) << "they count up or down";
  EXPECT_LE(near, kSample / 32) << "successive numbers are close";
}

// Each of the bits `first` .. `last` is 0 and 1 equally often, independently of the same bit of the
// next number.
inline void expect_even_bits(const std::vector<uint32_t>& numbers, int first, int last) {
  const double spread = 6 * std::sqrt(kSample) / 2;
  for (int bit = first; bit <= last; ++bit) {
    int ones = 0, changes = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      ones += (numbers[i] >> bit) & 1;
      if (i > 0) changes += ((numbers[i] ^ numbers[i - 1]) >> bit) & 1;
    }
    EXPECT_NEAR(ones, kSample / 2, spread) << "bit " << bit;
    EXPECT_NEAR(changes, kSample / 2, spread) << "bit " << bit;
  }
}

}  // namespace vrdma::test
