#include "client/device/memory/kept_pages.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace vrdma::client {
namespace {

constexpr uint64_t kUnit = 4096;
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

// Keeps the range, and returns the ranges that must be released for it.
Ranges keep(KeptPages& kept, uint64_t start, uint64_t end) {
  EXPECT_TRUE(kept.keep(start, end));
  Ranges gone;
  while (const auto range = kept.surplus()) gone.emplace_back(range->start, range->end);
  return gone;
}
// All kept ranges: those that must be released when the largest possible range arrives.
Ranges all_of(KeptPages kept) {
  constexpr uint64_t kElsewhere = uint64_t{1} << 40;
  Ranges gone = keep(kept, kElsewhere, kElsewhere + KeptPages::kMostBytes);
  return gone;
}

TEST(KeptPages, TheOldestGoesWhenThereAreTooManyBytes) {
  KeptPages kept;
  constexpr uint64_t kHalf = KeptPages::kMostBytes / 2;
  EXPECT_EQ(keep(kept, 0, kHalf), Ranges());
  EXPECT_EQ(keep(kept, kHalf, 2 * kHalf), Ranges());
  EXPECT_EQ(keep(kept, 2 * kHalf, 2 * kHalf + kUnit), (Ranges{{0, kHalf}}));
  EXPECT_FALSE(kept.keep(9 * kHalf, 11 * kHalf + kUnit));
}

TEST(KeptPages, TheOldestGoesWhenThereAreTooManyRanges) {
  KeptPages kept;
  for (uint64_t i = 0; i < KeptPages::kMostRanges; ++i)
    EXPECT_EQ(keep(kept, 2 * i * kUnit, (2 * i + 1) * kUnit), Ranges());
  EXPECT_EQ(keep(kept, 1000 * kUnit, 1001 * kUnit), (Ranges{{0, kUnit}}));
}

TEST(KeptPages, WhatIsTakenIsCutOut) {
  KeptPages kept;
  (void)keep(kept, 0, 4 * kUnit);
  (void)keep(kept, 8 * kUnit, 12 * kUnit);
  (void)keep(kept, 16 * kUnit, 20 * kUnit);
  kept.take(2 * kUnit, 17 * kUnit);
  EXPECT_EQ(all_of(kept), (Ranges{{0, 2 * kUnit}, {17 * kUnit, 20 * kUnit}}));
  kept.take(18 * kUnit, 19 * kUnit);
  EXPECT_EQ(all_of(kept),
            (Ranges{{0, 2 * kUnit}, {17 * kUnit, 18 * kUnit}, {19 * kUnit, 20 * kUnit}}));
  kept.take(0, 20 * kUnit);
  EXPECT_EQ(all_of(kept), Ranges());
}

TEST(KeptPages, CuttingTheMiddleOutOfAFullListMakesRoom) {
  KeptPages kept;
  for (uint64_t i = 0; i < KeptPages::kMostRanges; ++i)
    (void)keep(kept, 4 * i * kUnit, (4 * i + 3) * kUnit);
  kept.take(5 * kUnit, 6 * kUnit);
  const auto gone = kept.surplus();
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->start, 0u);
  EXPECT_FALSE(kept.surplus().has_value());
}

}  // namespace
}  // namespace vrdma::client
