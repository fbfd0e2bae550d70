// Unpredictable numbers that repeat only after all others were used.
//
// A Feistel network with a secret key permutes a counter. Random draws would repeat early (half of
// the time within 4,823 draws of 24 bits), and a peer's state for a number's last owner would meet
// the next: a connection request of a queue pair in TIMEWAIT is stale (IBTA 12.9.8.3.1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vrdma::base {

class UniqueNumbers {
 public:
  // Numbers of `bits` bits, which must be even and at most 32. Key and start come from
  // getrandom(2).
  explicit UniqueNumbers(unsigned bits);
  [[nodiscard]] uint32_t next();

 private:
  static constexpr size_t kRounds = 8;
  unsigned half_;  // bits
  uint32_t count_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace vrdma::base
