// The word that was probably meant by one that is unknown: for sentences about it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vrdma::base {

// The one of `words` that differs from `word` by at most two letters that are changed, added or
// left out, if any; capitals do not count. Empty: there is none, or `word` is long.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace vrdma::base
