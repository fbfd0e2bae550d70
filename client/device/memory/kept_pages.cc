#include "client/device/memory/kept_pages.h"

#include <algorithm>

namespace vrdma::client {

bool KeptPages::keep(uint64_t start, uint64_t end) {
  if (end - start > kMostBytes) return false;
  ranges_[count_++] = {start, end};
  bytes_ += end - start;
  return true;
}

void KeptPages::take(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < count_;) {
    Range& range = ranges_[i];
    const uint64_t from = std::max(start, range.start), to = std::min(end, range.end);
    if (from >= to) {
      ++i;
      continue;
    }
    bytes_ -= to - from;
    const Range before{range.start, from}, behind{to, range.end};
    if (before.start < before.end && behind.start < behind.end)
      ranges_[count_++] = behind;  // at most once, because the ranges are disjoint
    range = before.start < before.end ? before : behind;
    if (range.start == range.end)
      erase(i);
    else
      ++i;
  }
}

std::optional<KeptPages::Range> KeptPages::surplus() {
  if (count_ <= kMostRanges && bytes_ <= kMostBytes) return std::nullopt;
  const Range oldest = ranges_[0];
  bytes_ -= oldest.end - oldest.start;
  erase(0);
  return oldest;
}

void KeptPages::erase(size_t at) {
  std::copy(ranges_.begin() + static_cast<ptrdiff_t>(at) + 1,
            ranges_.begin() + static_cast<ptrdiff_t>(count_),
            ranges_.begin() + static_cast<ptrdiff_t>(at));
  --count_;
}

}  // namespace vrdma::client
