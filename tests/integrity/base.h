// What all parts of the generator use: failure, random numbers, bytes that a key determines.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace integrity {

// Where the program is: printed by fail().
inline std::string& place() {
  static std::string words;
  return words;
}

[[noreturn, gnu::format(printf, 1, 2)]] inline void fail(const char* how, ...) {
  va_list args;
  va_start(args, how);
  std::fprintf(stderr, "FAILED: %s: ", place().c_str());
  std::vfprintf(stderr, how, args);
  std::fputc('\n', stderr);
  va_end(args);
  std::_Exit(1);
}

inline uint64_t mixed(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // 0 .. limit - 1
  size_t below(size_t limit) {
    state_ = mixed(state_);
    return static_cast<size_t>(state_ % limit);
  }
  size_t between(size_t least, size_t most) { return least + below(most - least + 1); }
  bool one_in(size_t count) { return below(count) == 0; }
  uint64_t word() { return state_ = mixed(state_); }

 private:
  uint64_t state_;
};

// The same key gives the same bytes.
inline void fill(std::span<uint8_t> bytes, uint64_t key) {
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = mixed(key + i);
    for (size_t k = 0; k < 8 && i + k < bytes.size(); ++k)
      bytes[i + k] = static_cast<uint8_t>(word >> (8 * k));
  }
}

[[nodiscard]] inline bool is_filled(std::span<const uint8_t> bytes, uint64_t key) {
  std::vector<uint8_t> expected(bytes.size());
  fill(expected, key);
  return std::memcmp(bytes.data(), expected.data(), expected.size()) == 0;
}

}  // namespace integrity
