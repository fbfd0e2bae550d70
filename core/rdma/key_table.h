// Keys: which memory of a process an lkey or rkey names.
//
// The table stands in the owner's queue arena. The daemon is its only lawful writer. The owner, and
// its peers on direct links, read it under the entry's sequence count: a forged entry names memory
// of the forger, who trusts these peers. The daemon itself does not read it (key_record.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/ipc/layout.h"

namespace vrdma::rdma {

// Who names memory: by an lkey in its own protection domain, or by an rkey through a queue pair.
struct KeyUser {
  uint32_t pd = 0;
  uint32_t qpn = 0;  // 0: by an lkey
};

// A memory region as a key names it, copied out of the table.
struct Region {
  uint32_t pd = 0;
  uint32_t access = 0;  // verbs::Access
  uint64_t addr = 0;    // virtual address of the first byte
  uint64_t length = 0;
  uint64_t iova = 0;  // what work requests call the first byte
  ipc::Way way = ipc::Way::kReached;
  bool window = false;  // no lkey
  uint32_t qpn = 0;     // 0: any queue pair of the protection domain

  [[nodiscard]] bool admits(const KeyUser& user, uint32_t wanted) const {
    return pd == user.pd && (access & wanted) == wanted &&
           (user.qpn == 0 ? !window : qpn == 0 || qpn == user.qpn);
  }

  // The virtual address of `length_wanted` bytes at the work request's `address`; false if they
  // are not all inside.
  [[nodiscard]] bool locate(uint64_t address, uint64_t length_wanted, uint64_t* va) const {
    if (address < iova) return false;
    const uint64_t offset = address - iova;
    if (offset > length || length_wanted > length - offset) return false;
    *va = addr + offset;
    return true;
  }
};

// False if `key` is not a key of the table now.
[[nodiscard]] inline bool find_region(const ipc::KeyEntry* table, uint32_t key, Region* region) {
  const uint32_t slot = ipc::slot_of(key);
  if (slot == 0) return false;
  const ipc::KeyEntry& entry = table[slot];
  const uint32_t before = entry.sequence.load(std::memory_order_acquire);
  if ((before & 1) != 0) return false;
  const uint32_t found = __atomic_load_n(&entry.key, __ATOMIC_RELAXED);
  region->pd = __atomic_load_n(&entry.pd, __ATOMIC_RELAXED);
  region->access = __atomic_load_n(&entry.access, __ATOMIC_RELAXED);
  region->addr = __atomic_load_n(&entry.addr, __ATOMIC_RELAXED);
  region->length = __atomic_load_n(&entry.length, __ATOMIC_RELAXED);
  region->iova = __atomic_load_n(&entry.iova, __ATOMIC_RELAXED);
  region->way = static_cast<ipc::Way>(__atomic_load_n(&entry.way, __ATOMIC_RELAXED));
  region->window = __atomic_load_n(&entry.window, __ATOMIC_RELAXED) != 0;
  region->qpn = __atomic_load_n(&entry.qpn, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.sequence.load(std::memory_order_relaxed) != before) return false;
  return found == key;
}

// The region that one user of a table named last, by the same thread each time. As long as its
// entry was not changed, which shows in the sequence count, it need not be read again.
class KnownRegion {
 public:
  // The region that `key` names now, or nullptr.
  [[nodiscard]] const Region* find(const ipc::KeyEntry* table, uint32_t key) {
    if (key == key_ && table == table_ && key != 0 &&
        table[ipc::slot_of(key)].sequence.load(std::memory_order_acquire) == sequence_)
      return &region_;
    key_ = 0;
    const ipc::Word& count = table[ipc::slot_of(key)].sequence;
    const uint32_t sequence = count.load(std::memory_order_acquire);
    if (!find_region(table, key, &region_)) return nullptr;
    // Not one that was changed in between: the next look would take the old for the new.
    if (count.load(std::memory_order_relaxed) == sequence) {
      table_ = table;
      key_ = key;
      sequence_ = sequence;
    }
    return &region_;
  }

 private:
  const ipc::KeyEntry* table_ = nullptr;
  uint32_t key_ = 0;  // 0: none
  uint32_t sequence_ = 0;
  Region region_;
};

// The daemon's side. `region` nullptr frees the entry.
inline void write_key(ipc::KeyEntry* table, uint32_t key, const Region* region) {
  ipc::KeyEntry& entry = table[ipc::slot_of(key)];
  const uint32_t sequence = entry.sequence.load(std::memory_order_relaxed) | 1;
  entry.sequence.store(sequence, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const Region none;
  const Region& from = region != nullptr ? *region : none;
  __atomic_store_n(&entry.key, region != nullptr ? key : 0, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.pd, from.pd, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.access, from.access, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.addr, from.addr, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.length, from.length, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.iova, from.iova, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.way, static_cast<uint32_t>(from.way), __ATOMIC_RELAXED);
  __atomic_store_n(&entry.window, uint32_t{from.window}, __ATOMIC_RELAXED);
  __atomic_store_n(&entry.qpn, from.qpn, __ATOMIC_RELAXED);
  entry.sequence.store(sequence + 1, std::memory_order_release);
}

}  // namespace vrdma::rdma
