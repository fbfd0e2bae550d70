// Where a key's memory is, remembered from the last time that it was asked: what posting a message
// looks at for its source, its target and its receive.
#pragma once

#include "core/rdma/executor.h"

namespace vrdma::client {

// A stretch of a region whose memory is in place and that one user may use in one way. Good as long
// as the key's entry is not changed, which shows in its sequence count. Not for several threads at
// once.
class KnownStretch {
 public:
  // Where `length` > 0 bytes at `addr`, as work requests call it, are; nullptr: not known.
  [[nodiscard]] uint8_t* find(uint32_t key, uint64_t addr, uint64_t length) const {
    const uint64_t offset = addr - begin_;
    const bool known = key == key_ && offset < length_ && length <= length_ - offset &&
                       sequence_word_->load(std::memory_order_acquire) == sequence_;
    return known ? at_ + offset : nullptr;
  }

  // Looks the same up in `memory`. False: the key does not give `user` this access to them, or not
  // as simply as this.
  [[nodiscard]] bool learn(const rdma::Memory& memory, const rdma::KeyUser& user, uint32_t access,
                           uint32_t key, uint64_t addr, uint64_t length);

 private:
  uint64_t begin_ = 0, length_ = 0;  // 0: nothing is known
  uint8_t* at_ = nullptr;
  const ipc::Word* sequence_word_ = nullptr;
  uint32_t key_ = 0, sequence_ = 0;
};

}  // namespace vrdma::client
