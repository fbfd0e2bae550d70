// How to get at the memory of a process: its own pointers, or windows onto the files where its
// memory lies.
//
// A process's memory arena is one file in which offset = virtual address. The memory of a virtual
// machine is several extents: stretches of its addresses, each somewhere in a file. Either way a
// window of kWindowSize shows the addresses that it covers as they are, so an access needs no
// translation; it is mapped on first use. Windows are neither dumped nor inherited by children.
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
#include <vector>

#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"

namespace vrdma::rdma {

// Where a stretch of a process's addresses lies; in bytes, by whole pages.
struct Extent {
  uint64_t addr = 0, length = 0;
  base::Fd file;
  uint64_t offset = 0;
};

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
  // The memory of another process, by extents, in the order of their addresses. To touch what is in
  // none raises SIGBUS, as a hole does (transport/hole_guard.h).
  static constexpr size_t kMostExtents = 64;  // for each may be a mapping of each window
  [[nodiscard]] static base::Result<std::unique_ptr<AddressSpace>> of_extents(
      std::vector<Extent> extents, Windows windows);
  // The same, by its memory arena.
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
  [[nodiscard]] const base::Fd& arena() const { return extents_[0].file; }  // of of_arena()

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

  [[nodiscard]] bool map_piece(uint8_t* place, const Extent& extent, uint64_t addr,
                               uint64_t length) const;

  bool own_ = false;
  std::vector<Extent> extents_;
  base::Fd nothing_;             // a file without bytes, shown between extents
  std::mutex mutex_;             // guards mapped_ and the making of windows
  std::deque<uint64_t> mapped_;  // indices, the oldest first
  Windows limits_;
  uint64_t last_ = 0;                         // asked for last, if there is a limit
  std::atomic<uint8_t*>* windows_ = nullptr;  // one a window of user space, sparse
};

}  // namespace vrdma::rdma
