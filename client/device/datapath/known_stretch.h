// A cache of one key lookup: posting a message uses one each for its source, target and receive.
#pragma once

#include "core/rdma/executor.h"

namespace vrdma::client {

// A contiguous part of a region whose memory is in place, with one kind of access by one user.
// Valid until the sequence count of the key's entry changes. Not thread-safe.
class KnownStretch {
 public:
  // The location of `length` > 0 bytes at `addr`, an address of work requests; nullptr: unknown.
  [[nodiscard]] uint8_t* find(uint32_t key, uint64_t addr, uint64_t length) const {
    const uint64_t offset = addr - begin_;
    const bool known = key == key_ && offset < length_ && length <= length_ - offset &&
                       sequence_word_->load(std::memory_order_acquire) == sequence_;
    return known ? at_ + offset : nullptr;
  }

  // The virtual address, in its owner's memory, of what find() returned.
  [[nodiscard]] uint64_t address_of(const uint8_t* place) const {
    return first_ + static_cast<uint64_t>(place - at_);
  }

  // Looks the same up in `memory`. False: the key does not permit this access by `user`, or the
  // memory is not contiguous here.
  [[nodiscard]] bool learn(const rdma::Memory& memory, const rdma::KeyUser& user, uint32_t access,
                           uint32_t key, uint64_t addr, uint64_t length);

 private:
  uint64_t begin_ = 0, length_ = 0;  // length 0: nothing is known
  uint8_t* at_ = nullptr;
  uint64_t first_ = 0;  // the virtual address of at_
  const ipc::Word* sequence_word_ = nullptr;
  uint32_t key_ = 0, sequence_ = 0;
};

}  // namespace vrdma::client
