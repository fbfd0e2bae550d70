// The input of a fuzz target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vrdma::fuzz {

// Hands the input out piece by piece; zeros when it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  template <class T = uint8_t>
  T take() {
    T value{};
    const size_t count = std::min(sizeof value, left_);
    std::memcpy(&value, data_, count);
    data_ += count;
    left_ -= count;
    return value;
  }
  [[nodiscard]] bool empty() const { return left_ == 0; }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace vrdma::fuzz
