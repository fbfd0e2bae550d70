#include "core/base/unique_numbers.h"

#include <utility>

#include "core/base/random.h"

namespace vrdma::base {

namespace {

// The finalizer of SplitMix64: each input bit changes half of the output bits on average.
uint64_t mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

}  // namespace

UniqueNumbers::UniqueNumbers(unsigned bits) : half_(bits / 2), count_(random32()) {
  for (uint64_t& key : keys_) key = random64();
}

uint32_t UniqueNumbers::next() {
  const uint32_t mask = (uint32_t{1} << half_) - 1;
  const uint32_t count = count_++;
  uint32_t left = count >> half_ & mask, right = count & mask;
  for (const uint64_t key : keys_) {
    const auto scrambled = static_cast<uint32_t>(mix(mix(key ^ right) + key));
    left = std::exchange(right, (left ^ scrambled) & mask);
  }
  return left << half_ | right;
}

}  // namespace vrdma::base
