// Which pages of the memory arena stay when nobody has them registered any more.
//
// Making a page costs ten times what copying into it does, and programs register the same buffer
// again and again. So what was given back last is kept, up to a bound, for the next registration of
// the same addresses. Allocates nothing: it is asked while memory changes under the program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace vrdma::client {

// Not for several threads at once. Addresses are those of whole pages.
class KeptPages {
 public:
  struct Range {
    uint64_t start = 0, end = 0;
  };
  static constexpr uint64_t kMostBytes = 8u << 20;
  static constexpr size_t kMostRanges = 64;

  // [start, end), of which nothing is kept, is kept. False: it is too much. surplus() is to be
  // asked until there is none before either of these is called again.
  [[nodiscard]] bool keep(uint64_t start, uint64_t end);
  // Nothing of [start, end) is kept any more.
  void take(uint64_t start, uint64_t end);
  // What has to go, the oldest first.
  [[nodiscard]] std::optional<Range> surplus();

 private:
  void erase(size_t at);

  std::array<Range, kMostRanges + 1> ranges_;  // disjoint, the oldest first
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace vrdma::client
