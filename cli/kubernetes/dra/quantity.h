// Quantities of Kubernetes: "64", "1500m", "10G", "1.5Gi", "2e3".
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace vrdma::cli::kubernetes {

// The whole number, rounded up. EINVAL: the text is no quantity, or is negative. ERANGE: it does
// not fit in 64 bits.
[[nodiscard]] base::Result<uint64_t> parse_quantity(std::string_view text);

}  // namespace vrdma::cli::kubernetes
