// The argument "qp=64,mr_bytes=16g" of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace vrdma::cli {

// quota    := setting *("," setting)
// setting  := kind "=" number
// number   := digits [k|m|g|t]      in powers of 1024, either case
//           | "max"                 no limit, 2^64 - 1
//
// The daemon knows the kinds; this function accepts any word. EINVAL with a sentence if the text
// does not match the grammar, a number exceeds 64 bits, or a kind occurs twice.
[[nodiscard]] base::Result<std::vector<std::pair<std::string, uint64_t>>> parse_quota(
    const std::string& text);

// "max" or the decimal number.
[[nodiscard]] std::string limit_text(uint64_t limit);

}  // namespace vrdma::cli
