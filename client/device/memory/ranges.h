// A set of ranges of addresses, which may overlap and be the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace vrdma::client {

class Ranges {
 public:
  void add(uint64_t start, uint64_t end) {
    if (start >= end) return;
    all_.emplace(start, end);
    longest_ = std::max(longest_, end - start);
  }
  // One that was added.
  void remove(uint64_t start, uint64_t end) {
    const auto [first, last] = all_.equal_range(start);
    const auto found =
        std::find_if(first, last, [end](const auto& one) { return one.second == end; });
    if (found != last) all_.erase(found);
    if (all_.empty()) longest_ = 0;
  }
  // Whether one overlaps [start, end).
  [[nodiscard]] bool meet(uint64_t start, uint64_t end) const {
    bool found = false;
    each(start, end, [&](uint64_t, uint64_t) { found = true; });
    return found;
  }
  // Narrows [*start, *end) around [from, to), which none overlaps, until none overlaps it.
  void narrow(uint64_t* start, uint64_t* end, uint64_t from, uint64_t to) const {
    each(*start, *end, [&](uint64_t first, uint64_t past) {
      if (past <= from) *start = std::max(*start, past);
      if (first >= to) *end = std::min(*end, first);
    });
  }

 private:
  template <class See>
  void each(uint64_t start, uint64_t end, See see) const {
    // No range that begins before this one's first reaches it.
    for (auto it = all_.lower_bound(start - std::min(start, longest_));
         it != all_.end() && it->first < end; ++it)
      if (it->second > start) see(it->first, it->second);
  }

  std::multimap<uint64_t, uint64_t> all_;
  uint64_t longest_ = 0;
};

}  // namespace vrdma::client
