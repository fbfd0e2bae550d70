#include "cli/quota_argument.h"

#include <cctype>
#include <charconv>
#include <limits>
#include <string_view>

namespace vrdma::cli {

namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

base::Result<uint64_t> parse_number(std::string_view text) {
  const auto wrong = [&] {
    return base::fail(EINVAL, "'" + std::string(text) + "' is not a number such as 64, 16k or max");
  };
  if (text == "max") return kNoLimit;
  uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc::result_out_of_range)
    return base::fail(EINVAL, "'" + std::string(text) + "' is beyond 64 bits");
  if (error != std::errc()) return wrong();
  if (end == last) return number;
  static constexpr std::string_view kSuffixes = "kmgt";
  const auto power =
      kSuffixes.find(static_cast<char>(std::tolower(static_cast<unsigned char>(*end))));
  if (end + 1 != last || power == std::string_view::npos) return wrong();
  const auto shift = 10 * (power + 1);
  if (number > kNoLimit >> shift)
    return base::fail(EINVAL, "'" + std::string(text) + "' is beyond 64 bits");
  return number << shift;
}

}  // namespace

base::Result<std::vector<std::pair<std::string, uint64_t>>> parse_quota(const std::string& text) {
  std::vector<std::pair<std::string, uint64_t>> quota;
  std::string_view rest = text;
  for (;;) {
    const auto comma = rest.find(',');
    const std::string_view setting = rest.substr(0, comma);
    const auto equals = setting.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return base::fail(EINVAL, "'" + std::string(setting) + "' is not a quota such as qp=64");
    const std::string kind(setting.substr(0, equals));
    for (const auto& [known, limit] : quota)
      if (known == kind) return base::fail(EINVAL, "quota " + kind + " is given twice");
    auto number = parse_number(setting.substr(equals + 1));
    if (!number) return base::pass(std::move(number).error(), "quota " + kind);
    quota.emplace_back(kind, *number);
    if (comma == std::string_view::npos) return quota;
    rest.remove_prefix(comma + 1);
  }
}

std::string limit_text(uint64_t limit) { return limit == kNoLimit ? "max" : std::to_string(limit); }

}  // namespace vrdma::cli
