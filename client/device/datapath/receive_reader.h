// A reader's position in a ring of arrived receives (ipc::RecvRing). Under Cq::mutex of the polled
// CQ.
#pragma once

#include "core/ipc/layout.h"

namespace vrdma::client {

class ReceiveReader {
 public:
  // Detached: always empty.
  ReceiveReader() = default;
  ReceiveReader(const ipc::RecvRing* ring, uint32_t depth)
      : ring_(ring), next_(ring->entries()), mask_(depth - 1) {}

  // True if the next entry is published, or the one `further` behind it.
  [[nodiscard]] bool stands() const { return is_published(*next_, seen_); }
  [[nodiscard]] bool stands(uint32_t further) const {
    return ring_ != nullptr &&
           is_published(ring_->entries()[(seen_ + further) & mask_], seen_ + further);
  }
  [[nodiscard]] const ipc::RecvEntry& next() const { return *next_; }
  void advance() { next_ = ring_->entries() + (++seen_ & mask_); }
  // Starts again at the beginning, as the ring does.
  void rewind() {
    if (ring_ != nullptr) *this = {ring_, mask_ + 1};
  }
  [[nodiscard]] uint32_t depth() const { return mask_ + 1; }
  [[nodiscard]] uint32_t waiting() const {
    return ring_ != nullptr ? ipc::head_of(*ring_, mask_ + 1) - seen_ : 0;
  }

 private:
  static bool is_published(const ipc::RecvEntry& entry, uint32_t index) {
    return __atomic_load_n(&entry.number, __ATOMIC_ACQUIRE) == index + 1;
  }
  static constexpr ipc::RecvEntry kNone{};

  const ipc::RecvRing* ring_ = nullptr;
  const ipc::RecvEntry* next_ = &kNone;
  uint32_t mask_ = 0, seen_ = 0;
};

}  // namespace vrdma::client
