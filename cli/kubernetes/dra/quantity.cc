#include "cli/kubernetes/dra/quantity.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string>

#include "core/base/option_check.h"

namespace vrdma::cli::kubernetes {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

// A number is digits * 10^tens * 2^twos.
struct Scale {
  int tens = 0;
  int twos = 0;
};

std::optional<Scale> scale_of(std::string_view suffix) {
  constexpr std::string_view kDecimal = "kMGTPE", kBinary = "KMGTPE";
  if (suffix.empty()) return Scale{};
  if (suffix == "n") return Scale{-9, 0};
  if (suffix == "u") return Scale{-6, 0};
  if (suffix == "m") return Scale{-3, 0};
  if (const auto at = kDecimal.find(suffix[0]); suffix.size() == 1 && at != kDecimal.npos)
    return Scale{3 * (static_cast<int>(at) + 1), 0};
  if (const auto at = kBinary.find(suffix[0]);
      suffix.size() == 2 && suffix[1] == 'i' && at != kBinary.npos)
    return Scale{0, 10 * (static_cast<int>(at) + 1)};
  if (suffix[0] != 'e' && suffix[0] != 'E') return {};
  suffix.remove_prefix(1);
  const bool plus = suffix.starts_with('+');
  if (plus) suffix.remove_prefix(1);
  int exponent = 0;
  const auto [end, error] = std::from_chars(suffix.data(), suffix.data() + suffix.size(), exponent);
  if ((plus && suffix.starts_with('-')) || error != std::errc() ||
      end != suffix.data() + suffix.size() || exponent < -99 || exponent > 99)
    return {};
  return Scale{exponent, 0};
}

}  // namespace

base::Result<uint64_t> parse_quantity(std::string_view text) {
  const auto refused = [&] {
    return base::fail(EINVAL, base::in_quotes(std::string(text.substr(0, 64))) +
                                  " is not a quantity such as 64 or 10Gi");
  };
  std::string_view left = text;
  if (left.starts_with('+')) left.remove_prefix(1);
  uint64_t digits = 0;
  int fraction = 0;
  bool any = false, point = false;
  for (; !left.empty(); left.remove_prefix(1)) {
    if (left[0] == '.' && !point) {
      point = true;
      continue;
    }
    if (left[0] < '0' || left[0] > '9') break;
    any = true;
    const auto digit = static_cast<uint64_t>(left[0] - '0');
    if (digits > (kMost - digit) / 10)
      return base::fail(ERANGE, "the quantity has too many digits");
    digits = digits * 10 + digit;
    fraction += point ? 1 : 0;
  }
  const auto scale = scale_of(left);
  if (!any || !scale) return refused();
  // At most 2^64 * 2^60.
  Wide number = static_cast<Wide>(digits) << scale->twos;
  for (int tens = scale->tens - fraction; tens > 0 && number != 0 && number <= kMost; --tens)
    number *= 10;
  for (int tens = scale->tens - fraction; tens < 0 && number > 1; ++tens)
    number = (number + 9) / 10;
  if (number > kMost) return base::fail(ERANGE, "the quantity does not fit in 64 bits");
  return static_cast<uint64_t>(number);
}

}  // namespace vrdma::cli::kubernetes
