// The queue pair numbers of a vdevice, where its worker writes them and control looks them up:
// rdma_cm lets a program name only queue pairs of its own vdevice.
//
// The table is in a memory file (core/base/shared_page.h). Only QpNumbers (qp_numbers.h) writes it;
// QpNumberReader reads it at any time, in any thread or process, and waits for nothing. A number
// that the vdevice has during the whole call is found, because it never moves to another slot. The
// reader believes nothing about the writer: with a table full of nonsense it looks at kCapacity
// words and returns nonsense about this vdevice only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/verbs/types.h"

namespace vrdma::rdma {

// 0 and 1 are the special queue pairs, the last one names multicast (IBTA 9.2.1, 10.5.2).
[[nodiscard]] constexpr bool is_special_qpn(uint32_t qpn) {
  return qpn < 2 || qpn == verbs::kMulticastQpn;
}

struct QpNumberTable {
  static constexpr uint32_t kCapacity = 64 * 1024;  // the ceiling of the quota `qp`

  // Each word is accessed as an atomic. Zero is an empty table and a free slot, and the constructor
  // writes nothing, so that the memory file has only those pages that were used.
  uint32_t end_word;  // the slots from here on are not used, whatever they contain
  std::array<uint32_t, kCapacity> numbers;

  [[nodiscard]] std::atomic_ref<uint32_t> end() { return std::atomic_ref(end_word); }
  [[nodiscard]] std::atomic_ref<uint32_t> slot(uint32_t index) {
    return std::atomic_ref(numbers[index]);
  }
  // Without a worker that writes: before another worker gets the table of a worker that has ended.
  void clear() { end().store(0, std::memory_order_release); }
};
static_assert(std::is_trivially_default_constructible_v<QpNumberTable> &&
              std::atomic_ref<uint32_t>::is_always_lock_free);

class QpNumberReader {
 public:
  QpNumberReader() = default;  // of a vdevice without queue pairs
  explicit QpNumberReader(std::shared_ptr<QpNumberTable> table) : table_(std::move(table)) {}

  // Looks at as many slots as the vdevice had queue pairs at once since it last had few.
  [[nodiscard]] bool contains(uint32_t qpn) const {
    if (table_ == nullptr || is_special_qpn(qpn)) return false;
    const uint32_t end =
        std::min(table_->end().load(std::memory_order_acquire), QpNumberTable::kCapacity);
    for (uint32_t index = 0; index < end; ++index)
      if (table_->slot(index).load(std::memory_order_relaxed) == qpn) return true;
    return false;
  }

 private:
  std::shared_ptr<QpNumberTable> table_;
};

}  // namespace vrdma::rdma
