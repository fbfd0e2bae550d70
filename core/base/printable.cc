#include "core/base/printable.h"

#include <algorithm>
#include <cstdint>

#include "core/base/hex.h"

namespace vrdma::base {

namespace {

bool is_disturbing(uint32_t character) {
  return character < ' ' || (character > '~' && character < 0xa0) ||
         (character >= 0x200b && character <= 0x200f) ||
         (character >= 0x2028 && character <= 0x202e) ||
         (character >= 0x2060 && character <= 0x206f) || character == 0x61c ||
         character == 0xfeff || character >= 0xe0000;
}

struct Character {
  size_t bytes = 0;  // 0: the text begins with none
  uint32_t number = 0;
};
// With which `text` begins, which is not empty.
Character character_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, first};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
  uint32_t number = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return {};
    number = number << 6 | (next & 0x3f);
  }
  constexpr uint32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (number < kShortest[length] || number > 0x10ffff || (number >= 0xd800 && number < 0xe000))
    return {};
  return {length, number};
}

}  // namespace

std::string printable(std::string_view text, size_t most) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= most) return result + "...";
    const Character character = character_at(text);
    const size_t taken = std::max<size_t>(character.bytes, 1);
    if (character.bytes != 0 && !is_disturbing(character.number)) {
      result += text.substr(0, taken);
    } else {
      for (const char& byte : text.substr(0, taken)) (result += "\\x") += hex_of({&byte, 1});
    }
    text.remove_prefix(taken);
  }
  return result;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_at(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace vrdma::base
