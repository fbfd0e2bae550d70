// What cannot be a value in a message, under the number that the message has.
//
// Control puts it there before it sends the message; the worker takes it when the message comes.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace vrdma::vrdmad {

template <class T>
class Handover {
 public:
  void put(uint64_t number, T what) {
    const std::lock_guard lock(mutex_);
    all_.insert_or_assign(number, std::move(what));
  }
  [[nodiscard]] std::optional<T> take(uint64_t number) {
    const std::lock_guard lock(mutex_);
    auto taken = all_.extract(number);
    if (taken.empty()) return std::nullopt;
    return std::move(taken.mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, T> all_;
};

}  // namespace vrdma::vrdmad
