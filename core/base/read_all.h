// Reads a whole file, up to a bound.
#pragma once

#include <cstddef>
#include <string>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::base {

// Reads to the end. EFBIG: more than `most` bytes.
[[nodiscard]] Result<std::string> read_all(const Fd& file, size_t most);

}  // namespace vrdma::base
