// A number that one thread writes and any thread reads.
//
// Increments are plain loads and stores, so that counting on the data path costs no locked
// instruction. A copy is a value of the time of the copy.
#pragma once

#include <atomic>
#include <cstdint>

namespace vrdma::base {

class Counter {
 public:
  Counter() = default;
  Counter(uint64_t value) : value_(value) {}  // NOLINT: a Counter stands for its number
  Counter(const Counter& other) : value_(other.get()) {}
  Counter& operator=(const Counter& other) { return *this = other.get(); }
  Counter& operator=(uint64_t value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  ~Counter() = default;

  [[nodiscard]] uint64_t get() const { return value_.load(std::memory_order_relaxed); }
  operator uint64_t() const { return get(); }  // NOLINT

  Counter& operator+=(uint64_t more) { return *this = get() + more; }
  Counter& operator-=(uint64_t less) { return *this = get() - less; }
  Counter& operator++() { return *this += 1; }
  Counter& operator--() { return *this -= 1; }

 private:
  std::atomic<uint64_t> value_{0};
};
static_assert(sizeof(Counter) == sizeof(uint64_t) && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace vrdma::base
