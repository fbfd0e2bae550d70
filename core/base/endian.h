// Integers with a byte order and alignment 1.
//
// A struct of them is a wire format: it can overlay received bytes at any address, has no padding,
// and needs no htonl. A type rather than a function, because the compiler then rejects mixing
// values of the wire with those of the host, and no load is misaligned.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace vrdma::base {

template <class T, std::endian Order>
class Ordered {
 public:
  Ordered() = default;
  Ordered(T value) { *this = value; }  // NOLINT(google-explicit-constructor): reads as an integer
  Ordered& operator=(T value) {
    value = swapped(value);
    std::memcpy(bytes_, &value, sizeof value);
    return *this;
  }
  operator T() const {  // NOLINT(google-explicit-constructor)
    T value;
    std::memcpy(&value, bytes_, sizeof value);
    return swapped(value);
  }

 private:
  static T swapped(T value) {
    if constexpr (Order == std::endian::native) return value;
    if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(value));
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
  }
  uint8_t bytes_[sizeof(T)];
};

// 24 bits, for queue pair and packet sequence numbers; higher bits of a value are dropped.
class ub24 {
 public:
  ub24() = default;
  ub24(uint32_t value) { *this = value; }  // NOLINT(google-explicit-constructor)
  ub24& operator=(uint32_t value) {
    for (int i = 0; i < 3; ++i) bytes_[i] = static_cast<uint8_t>(value >> (16 - 8 * i));
    return *this;
  }
  operator uint32_t() const {  // NOLINT(google-explicit-constructor)
    return static_cast<uint32_t>(bytes_[0] << 16 | bytes_[1] << 8 | bytes_[2]);
  }

 private:
  uint8_t bytes_[3];
};

using ub16 = Ordered<uint16_t, std::endian::big>;
using ub32 = Ordered<uint32_t, std::endian::big>;
using ub64 = Ordered<uint64_t, std::endian::big>;
using ul16 = Ordered<uint16_t, std::endian::little>;
using ul32 = Ordered<uint32_t, std::endian::little>;
using ul64 = Ordered<uint64_t, std::endian::little>;

}  // namespace vrdma::base
