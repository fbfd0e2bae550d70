// A file that an operator names; "-" is standard input.
#pragma once

#include <string>

#include "core/base/error.h"

namespace vrdma::cli {

// What messages call it.
[[nodiscard]] std::string name_of_file(const std::string& path);
// EFBIG: it has more than apply::kMostBytes.
[[nodiscard]] base::Result<std::string> input_of(const std::string& path);

}  // namespace vrdma::cli
