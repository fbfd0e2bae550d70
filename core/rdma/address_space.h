// How to get at the memory of a process: its own pointers, or windows onto its memory arena.
//
// In a process's memory arena offset = virtual address, so that an address needs no translation,
// only a window of kWindowSize that covers it, mapped on first use. Windows are neither dumped nor
// inherited by children.
//
// Threads: at() may be called by many at once. The object must outlive every pointer it gave. With
// a limit of windows, at() is for one thread, and a pointer is good until the next but one is asked
// for: what then is mapped may take the place of the oldest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"

namespace vrdma::rdma {

class AddressSpace {
 public:
  // The calling process's own memory: every address is its own pointer.
  [[nodiscard]] static std::unique_ptr<AddressSpace> own();
  struct Windows {
    size_t max = 0;  // that are mapped at a time; 0: no limit
    // Called for each that is mapped; false: it is not to be used.
    bool (*watch)(uint8_t* window, size_t size) = nullptr;
    // None is mapped: memory in place is reached like all other.
    bool none = false;
  };
  // The memory of another process, by its memory arena.
  [[nodiscard]] static base::Result<std::unique_ptr<AddressSpace>> of_arena(base::Fd arena,
                                                                            Windows windows);
  [[nodiscard]] static base::Result<std::unique_ptr<AddressSpace>> of_arena(base::Fd arena) {
    return of_arena(std::move(arena), Windows{});
  }

  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  ~AddressSpace();

  [[nodiscard]] bool is_own() const { return own_; }
  // at() gives no pointer to anything.
  [[nodiscard]] bool has_no_windows() const { return limits_.none; }
  [[nodiscard]] const base::Fd& arena() const { return arena_; }  // of of_arena()

  // A pointer to `addr`, good for *run bytes: `length`, or up to the end of the window.
  // nullptr if the address is outside user space or the window cannot be mapped.
  [[nodiscard]] uint8_t* at(uint64_t addr, uint64_t length, uint64_t* run) {
    if (own_) {
      *run = length;
      return reinterpret_cast<uint8_t*>(addr);
    }
    if (addr >= ipc::kMemoryArenaSize) return nullptr;
    const uint64_t index = addr / ipc::kWindowSize;
    const uint64_t offset = addr % ipc::kWindowSize;
    uint8_t* window = windows_[index].load(std::memory_order_acquire);
    if (window == nullptr) window = map_window(index);
    if (window == nullptr) return nullptr;
    if (limits_.max != 0) last_ = index;
    *run = std::min(length, ipc::kWindowSize - offset);
    return window + offset;
  }

 private:
  AddressSpace() = default;
  uint8_t* map_window(uint64_t index);
  void unmap_oldest();

  bool own_ = false;
  base::Fd arena_;
  std::mutex mutex_;             // guards mapped_ and the making of windows
  std::deque<uint64_t> mapped_;  // indices, the oldest first
  Windows limits_;
  uint64_t last_ = 0;                         // asked for last, if there is a limit
  std::atomic<uint8_t*>* windows_ = nullptr;  // one a window of the arena, sparse
};

}  // namespace vrdma::rdma
