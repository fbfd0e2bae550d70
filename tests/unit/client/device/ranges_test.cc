#include "client/device/memory/ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vrdma::client {
namespace {

TEST(Ranges, AreWhatAListWouldSay) {
  std::mt19937 random(std::random_device{}());
  const auto below = [&](uint64_t limit) { return random() % limit; };
  Ranges ranges;
  std::vector<std::pair<uint64_t, uint64_t>> list;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t start = below(100), end = start + 1 + below(i % 50 == 0 ? 60 : 8);
    if (list.size() > 12 || (below(2) == 0 && !list.empty())) {
      const auto gone = list.begin() + static_cast<ptrdiff_t>(below(list.size()));
      ranges.remove(gone->first, gone->second);
      list.erase(gone);
    } else {
      ranges.add(start, end);
      list.emplace_back(start, end);
    }
    const uint64_t from = below(100), to = from + 1 + below(10);
    bool meets = false;
    uint64_t low = from - std::min<uint64_t>(from, 20), high = to + 20;
    const uint64_t begin = low, past = high;
    for (const auto& [first, last] : list) {
      meets = meets || (first < to && from < last);
      if (last <= from) low = std::max(low, last);
      if (first >= to) high = std::min(high, first);
    }
    ASSERT_EQ(ranges.meet(from, to), meets);
    if (meets) continue;
    uint64_t narrow_start = begin, narrow_end = past;
    ranges.narrow(&narrow_start, &narrow_end, from, to);
    ASSERT_EQ(narrow_start, low);
    ASSERT_EQ(narrow_end, high);
  }
}

TEST(Ranges, ForgetNothingThatWasNotAdded) {
  Ranges ranges;
  ranges.add(10, 20);
  ranges.add(10, 20);
  ranges.add(5, 5);
  ranges.remove(10, 19);
  ranges.remove(10, 20);
  EXPECT_TRUE(ranges.meet(19, 30));
  ranges.remove(10, 20);
  EXPECT_FALSE(ranges.meet(0, UINT64_MAX));
}

}  // namespace
}  // namespace vrdma::client
