#include "cli/size_text.h"

#include <array>
#include <cstdio>

#include "provisioning/kind.h"

namespace vrdma::cli {

namespace {

// "1.5" and the unit, of at most four digits.
template <size_t count>
std::string scaled(double number, double step, const std::array<const char*, count>& units) {
  size_t unit = 0;
  while (number >= step && unit + 1 < count) {
    number /= step;
    ++unit;
  }
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.4g%s", number, units[unit]);
  return text.data();
}

}  // namespace

std::string amount_text(const std::string& kind, uint64_t amount, bool exact) {
  if (amount == provisioning::kCeiling) return "max";
  const auto known = provisioning::find_kind(kind);
  const auto unit = known ? provisioning::traits(*known).unit : provisioning::Unit::kCount;
  if (exact || amount == 0) return std::to_string(amount);
  if (unit == provisioning::Unit::kBytes) return size_text(amount, false);
  const auto number = static_cast<double>(amount);
  if (unit == provisioning::Unit::kBytesPerSecond)
    return scaled(number * 8, 1000, std::array{"bit", "kbit", "mbit", "gbit", "tbit"});
  return std::to_string(amount);
}

std::string size_text(uint64_t bytes, bool exact) {
  if (exact) return std::to_string(bytes);
  return scaled(static_cast<double>(bytes), 1024, std::array{"", "K", "M", "G", "T", "P", "E"});
}

std::string short_number(double number) {
  static constexpr std::array kUnits{"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (number >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), unit > 0 && number < 9.95 ? "%.1f%s" : "%.0f%s",
                      number, kUnits[unit]);
  return text.data();
}

}  // namespace vrdma::cli
