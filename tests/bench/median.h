// The median of measured values, of which there is at least one; of an even number the upper one.
#pragma once

#include <algorithm>
#include <vector>

namespace vrdma::bench {

template <class T>
[[nodiscard]] T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace vrdma::bench
