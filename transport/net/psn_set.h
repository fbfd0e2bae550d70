// A set of packet sequence numbers, none of which is kSpan or more beyond any other.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/wire/roce.h"

namespace vrdma::transport::net {

// The most packets that either side of a queue pair keeps track of: requests without an answer,
// packets that came before their turn. Far below 2^23, so that sequence numbers can be compared.
constexpr uint32_t kSpan = 1024;

class PsnSet {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(uint32_t psn) const { return (word(psn) >> bit(psn) & 1) != 0; }
  void insert(uint32_t psn) {
    size_ += contains(psn) ? 0 : 1;
    word(psn) |= uint64_t{1} << bit(psn);
  }
  void erase(uint32_t psn) {
    size_ -= contains(psn) ? 1 : 0;
    word(psn) &= ~(uint64_t{1} << bit(psn));
  }
  // From `from` to before `to`.
  void insert(uint32_t from, uint32_t to) {
    for (; from != to; from = wire::psn_add(from, 1)) insert(from);
  }
  void erase(uint32_t from, uint32_t to) {
    if (empty()) return;
    for (; from != to; from = wire::psn_add(from, 1)) erase(from);
  }
  void clear() {
    words_.fill(0);
    size_ = 0;
  }
  // The first one at or behind `from` and before `to`; `to` if there is none.
  [[nodiscard]] uint32_t first(uint32_t from, uint32_t to) const {
    if (empty()) return to;
    while (from != to && !contains(from)) {
      // A word without any is skipped.
      const uint32_t rest = 64 - bit(from);
      const uint32_t left = (to - from) & verbs::kPsnMask;
      const uint64_t ahead = word(from) >> bit(from);
      const uint32_t step = ahead == 0 ? rest : static_cast<uint32_t>(std::countr_zero(ahead));
      from = wire::psn_add(from, step < left ? step : left);
    }
    return from;
  }

 private:
  static uint32_t bit(uint32_t psn) { return psn % 64; }
  uint64_t& word(uint32_t psn) { return words_[psn / 64 % words_.size()]; }
  [[nodiscard]] const uint64_t& word(uint32_t psn) const {
    return words_[psn / 64 % words_.size()];
  }

  std::array<uint64_t, kSpan / 64> words_{};
  uint32_t size_ = 0;
};

}  // namespace vrdma::transport::net
