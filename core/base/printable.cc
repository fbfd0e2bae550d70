#include "core/base/printable.h"

#include <cstdint>

namespace vrdma::base {

namespace {

bool is_disturbing(uint32_t character) {
  return character < 0xa0 || (character >= 0x200b && character <= 0x200f) ||
         (character >= 0x2028 && character <= 0x202e) ||
         (character >= 0x2060 && character <= 0x206f) || character == 0x61c ||
         character == 0xfeff || character >= 0xe0000;
}

// The bytes of the character beyond ASCII with which `text` begins, if it may be printed; or 0.
size_t character_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t character = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    character = character << 6 | (next & 0x3f);
  }
  constexpr uint32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = character >= kShortest[length] && !(character >= 0xd800 && character < 0xe000);
  return valid && !is_disturbing(character) ? length : 0;
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    if (result.size() >= most) return result + "...";
    const auto byte = static_cast<unsigned char>(text[0]);
    size_t taken = 1;
    if (byte >= ' ' && byte <= '~') {
      result += text[0];
    } else if (byte >= 0x80 && character_at(text) != 0) {
      taken = character_at(text);
      result += text.substr(0, taken);
    } else {
      (result += "\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
    }
    text.remove_prefix(taken);
  }
  return result;
}

}  // namespace vrdma::base
