#include "core/base/nearest.h"

#include <algorithm>
#include <cctype>

namespace vrdma::base {

namespace {

// The number of letters to be changed, added or left out.
size_t edits(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t i = 0; i <= to.size(); ++i) row[i] = i;
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t changed = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[to.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  constexpr size_t kLikely = 2, kLongest = 32;
  if (word.size() > kLongest) return {};
  std::string lower;
  for (const char c : word) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string best;
  size_t least = kLikely + 1;
  for (const auto& one : words)
    if (const size_t differ = edits(lower, one); differ < least && differ < one.size()) {
      least = differ;
      best = one;
    }
  return best;
}

}  // namespace vrdma::base
