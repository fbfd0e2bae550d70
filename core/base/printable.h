// Makes untrusted text safe for a log line, a terminal or a message.
#pragma once

#include <string>
#include <string_view>

namespace vrdma::base {

constexpr size_t kMostPrinted = 2048;  // gRPC carries no sentence of more than 8 KiB

// `text` with each byte that is not printable ASCII written as \xNN, and cut off after `most`
// bytes. Backslashes are unchanged: names of control groups contain them, and the text is
// for people, not for decoding.
[[nodiscard]] inline std::string printable(std::string_view text, size_t most = kMostPrinted) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    if (result.size() >= most) return result + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (c >= ' ' && c <= '~')
      result += c;
    else
      (result += "\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return result;
}

}  // namespace vrdma::base
