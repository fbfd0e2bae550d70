// How to get at the memory of a process: its own pointers, or windows onto the file where its
// memory lies.
//
// A process's memory arena is one file in which offset = virtual address. A window of kWindowSize
// shows the addresses that it covers as they are, so an access needs no translation; it is mapped
// on first use. Pages of the process that lie in other files, as the memory of a virtual machine
// does, are found by the page table that the process shows (core/ipc/page_table.h); these files are
// mapped whole. Windows are neither dumped nor inherited by children.
//
// Threads: at() may be called by many at once. The object must outlive every pointer it gave. With
// a limit of windows, at() is for one thread, and a pointer is good until the next but one is asked
// for: what then is mapped may take the place of the oldest. show() is for the thread of at(), and
// ends the pointers into the files that were shown before.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/layout.h"
#include "core/ipc/page_table.h"

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

  // Of of_arena(): pages for which `table`, of ipc::kPageTableSize, has an entry lie in these files
  // from now on; it replaces what was shown before. The files are sealed against shrinking, and
  // `size` is theirs: the caller has checked both. No file and no table: all pages are the arena's.
  // E2BIG, EINVAL: too many files, too large, or of no whole pages; ENOTSUP: there are no windows.
  // After an error all is as before.
  struct File {
    const base::Fd* file = nullptr;
    uint64_t size = 0;
  };
  [[nodiscard]] base::Result<void> show(const base::Fd* table, std::span<const File> files);
  [[nodiscard]] bool shows() const { return table_ != nullptr; }

  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  ~AddressSpace();

  [[nodiscard]] bool is_own() const { return own_; }
  // at() gives no pointer to anything.
  [[nodiscard]] bool has_no_windows() const { return limits_.none; }
  [[nodiscard]] const base::Fd& arena() const { return arena_; }

  // A pointer to `addr`, good for *run bytes: `length`, or up to the end of the window, or of pages
  // that follow one another in a file. nullptr if the address is outside user space or the window
  // cannot be mapped. To touch a page that the file does not have, or a page table that has none
  // there, raises SIGBUS if the windows are watched (transport/hole_guard.h).
  [[nodiscard]] uint8_t* at(uint64_t addr, uint64_t length, uint64_t* run) {
    if (own_) {
      *run = length;
      return reinterpret_cast<uint8_t*>(addr);
    }
    if (addr >= ipc::kMemoryArenaSize) return nullptr;
    if (table_ != nullptr)
      if (uint8_t* const shown = find_shown(addr, length, run); shown != nullptr) return shown;
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
  [[nodiscard]] bool is_watched(const base::Mapping& mapping) const {
    return limits_.watch == nullptr || limits_.watch(mapping.bytes(), mapping.size());
  }
  [[nodiscard]] ipc::PageEntry entry(uint64_t page) const {
    return __atomic_load_n(table_ + page, __ATOMIC_RELAXED);
  }
  // nullptr: the page is in no file.
  [[nodiscard]] uint8_t* place_of(ipc::PageEntry entry) const;
  [[nodiscard]] uint8_t* find_shown(uint64_t addr, uint64_t length, uint64_t* run) const;

  bool own_ = false;
  base::Fd arena_;
  std::mutex mutex_;             // guards mapped_ and the making of windows
  std::deque<uint64_t> mapped_;  // indices, the oldest first
  Windows limits_;
  uint64_t last_ = 0;                         // asked for last, if there is a limit
  std::atomic<uint8_t*>* windows_ = nullptr;  // one a window of user space, sparse
  // What is shown.
  const ipc::PageEntry* table_ = nullptr;
  base::Mapping table_mapping_;
  std::array<base::Mapping, ipc::kMostShownFiles>
      files_;  // the first of them, as many as there are
};

}  // namespace vrdma::rdma
