// Text that a stranger chose, fit for a line of a log, for a terminal and for a message.
#pragma once

#include <string>
#include <string_view>

namespace vrdma::base {

// `text` with each byte that is no printable ASCII written as \xNN. Backslashes stay as they are:
// names of control groups have them, and it is for people, not for getting the bytes back.
[[nodiscard]] inline std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c >= ' ' && c <= '~')
      result += c;
    else
      (result += "\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return result;
}

}  // namespace vrdma::base
