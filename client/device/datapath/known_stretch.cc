#include "client/device/datapath/known_stretch.h"

#include <algorithm>

namespace vrdma::client {

namespace {

bool is_at_hand(const rdma::Region& region, const rdma::Memory& memory) {
  return region.way == ipc::Way::kInPlace ||
         (region.way == ipc::Way::kReached && memory.space->is_own());
}

}  // namespace

bool KnownStretch::learn(const rdma::Memory& memory, const rdma::KeyUser& user, uint32_t access,
                         uint32_t key, uint64_t addr, uint64_t length) {
  length_ = 0;
  const ipc::KeyEntry* table = memory.keys.table();
  sequence_word_ = &table[ipc::slot_of(key)].sequence;
  sequence_ = sequence_word_->load(std::memory_order_acquire);
  key_ = key;
  rdma::Region region;
  uint64_t va = 0, run = 0;
  if (!rdma::find_region(table, key, &region) || !region.admits(user, access) ||
      !is_at_hand(region, memory) || !region.locate(addr, length, &va))
    return false;
  // The part of the region that is contiguous here too.
  const uint64_t first = memory.space->is_own()
                             ? region.addr
                             : std::max(region.addr, va / ipc::kWindowSize * ipc::kWindowSize);
  at_ = memory.space->at(first, region.length - (first - region.addr), &run);
  if (at_ == nullptr || va - first + length > run) return false;
  // Not if the entry was changed meanwhile, or find() would take the old entry for the new one.
  if (sequence_word_->load(std::memory_order_relaxed) != sequence_) return false;
  begin_ = addr - (va - first);
  first_ = first;
  length_ = run;
  return true;
}

}  // namespace vrdma::client
