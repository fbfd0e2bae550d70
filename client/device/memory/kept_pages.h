// The pages that the memory arena keeps after their last registration ends.
//
// Allocating a page takes ten times as long as copying into it, and programs register the same
// buffer repeatedly. So the arena keeps the most recently released pages, up to a bound, for the
// next registration of their addresses. Allocates nothing, because it is called while memory
// changes under the program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace vrdma::client {

// Not thread-safe. Addresses are page-aligned.
class KeptPages {
 public:
  struct Range {
    uint64_t start = 0, end = 0;
  };
  static constexpr uint64_t kMostBytes = 8u << 20;
  static constexpr size_t kMostRanges = 64;

  // Keeps [start, end), which must not overlap kept ranges. False: too large. The caller must take
  // all of surplus() before the next call of either function.
  [[nodiscard]] bool keep(uint64_t start, uint64_t end);
  // Keeps nothing of [start, end) any longer.
  void take(uint64_t start, uint64_t end);
  // A range to release, the oldest first.
  [[nodiscard]] std::optional<Range> surplus();

 private:
  void erase(size_t at);

  std::array<Range, kMostRanges + 1> ranges_;  // disjoint, the oldest first
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace vrdma::client
