// Bytes as hexadecimal digits: two for each byte, in lower case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vrdma::base {

[[nodiscard]] inline std::string hex_of(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    text += kDigits[static_cast<uint8_t>(byte) >> 4];
    text += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

[[nodiscard]] inline bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Nothing: other characters, or an odd number of digits.
[[nodiscard]] inline std::optional<std::string> bytes_of_hex(std::string_view text) {
  if (text.size() % 2 != 0 || !is_hex(text)) return std::nullopt;
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2)
    bytes += static_cast<char>(value(text[i]) << 4 | value(text[i + 1]));
  return bytes;
}

}  // namespace vrdma::base
