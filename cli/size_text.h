// Sizes and rates for people, in the units that `quota set` accepts.
#pragma once

#include <cstdint>
#include <string>

namespace vrdma::cli {

// A limit or use of a kind of quota: "64", "16G" of bytes (powers of 1024), "10gbit" of bytes per
// second (powers of 1000), "max" for no limit. At most four digits; with `exact` all digits, in
// bytes. Kinds that this program does not know are counts.
[[nodiscard]] std::string amount_text(const std::string& kind, uint64_t amount, bool exact);

// The same of a number of bytes.
[[nodiscard]] std::string size_text(uint64_t bytes, bool exact);

// "950", "1.2k", "3.4M": at most three digits, powers of 1000.
[[nodiscard]] std::string short_number(double number);

}  // namespace vrdma::cli
