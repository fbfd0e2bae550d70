// The numbers of a device's queue pairs, for threads other than its worker: who stamps connection
// messages asks here whether a number is the device's. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace vrdma::rdma {

class QpNumbers {
 public:
  void add(uint32_t qpn) {
    const std::lock_guard lock(mutex_);
    numbers_.insert(qpn);
  }
  void remove(uint32_t qpn) {
    const std::lock_guard lock(mutex_);
    numbers_.erase(qpn);
  }
  [[nodiscard]] bool contains(uint32_t qpn) const {
    const std::lock_guard lock(mutex_);
    return numbers_.contains(qpn);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<uint32_t> numbers_;
};

}  // namespace vrdma::rdma
