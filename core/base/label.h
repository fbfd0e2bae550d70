// Labels are an operator's notes on a vdevice; the daemon does not interpret them.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/base/error.h"

namespace vrdma::base {

// At most kMaxLabels; a key is 1 to kMaxLabelKey letters, digits, '_', '-', '.' or '/', and begins
// with a letter or a digit; a value is at most kMaxLabelValue printable ASCII characters.
inline constexpr size_t kMaxLabels = 16, kMaxLabelKey = 63, kMaxLabelValue = 255;
[[nodiscard]] Result<void> check_labels(const std::map<std::string, std::string>& labels);

}  // namespace vrdma::base
