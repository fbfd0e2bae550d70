// The memory of a virtual machine, as its VMM shares it: ranges of guest-physical addresses, each
// in a memory file.
//
// A file must be sealed against shrinking (memfd_create(2), as QEMU's memory-backend-memfd does),
// so that no access faults. What is in no such file (firmware, registers of other devices) is no
// memory here.
//
// Pages shows scattered pages of the guest as one range of this process, which can be registered as
// a memory region or hold a ring. When the VMM takes a range of memory away, Pages that show it
// show nothing there any more. Pages of a region are also shown to the vdevice's worker
// (shown_memory.h).
//
// One thread. Pages must not outlive their GuestRam.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "pvrdma/device/shown_memory.h"

namespace vrdma::pvrdma {

class GuestRam;

class Pages {
 public:
  // What lies where memory was taken away: nothing, so that an access fails; or zeros.
  enum class After : uint8_t { kNothing, kZeros };

  Pages() = default;
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { reset(); }
  void reset();

  [[nodiscard]] uint8_t* bytes() const { return bytes_; }
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  friend class GuestRam;
  struct Run {                     // pages that follow one another in the guest's memory
    uint64_t address, length, at;  // at: in this range
  };
  // Whether workers have to learn of it.
  [[nodiscard]] bool take_away(uint64_t address, uint64_t length);
  // Workers do not find [from, to) of this range any more.
  void hide(uint64_t from, uint64_t to);

  GuestRam* ram_ = nullptr;
  uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0;
  After after_ = After::kNothing;
  bool is_shown_ = false;  // to workers, too
  std::vector<Run> runs_;
};

class GuestRam {
 public:
  // Reserves the addresses of a VM; an access needs no search.
  // `viewer`: of show_to_workers(); nullptr: there is none.
  [[nodiscard]] static base::Result<std::unique_ptr<GuestRam>> create(
      MemoryViewer* viewer = nullptr);
  GuestRam(const GuestRam&) = delete;
  GuestRam& operator=(const GuestRam&) = delete;
  ~GuestRam();

  // A range, by whole pages; it does not wrap. Returns 0; EEXIST: a part is mapped already; ENOSPC:
  // there are kMostRanges. Memory that cannot be used is left out, and the log says why.
  static constexpr size_t kMostRanges = 4096;
  [[nodiscard]] int map(uint64_t address, uint64_t length, base::Fd file, uint64_t offset);
  // A range that map() was given.
  [[nodiscard]] int unmap(uint64_t address, uint64_t length);
  void unmap_all();

  // The guest's bytes there, as long as no range is unmapped; nullptr: not all is memory.
  [[nodiscard]] uint8_t* at(uint64_t address, uint64_t length) const;
  // Where at() counts from: the guest's address 0.
  [[nodiscard]] uint8_t* base() const { return base_; }
  // Where the guest's memory ends, counted so; there are holes in it.
  [[nodiscard]] uint64_t top() const;
  // Addresses of guests are below it.
  static constexpr uint64_t kEnd = uint64_t{1} << 42;

  // The pages at these guest-physical addresses, one after the other. EFAULT: one is no memory, or
  // no address of a page. ENOMEM: too many pieces.
  [[nodiscard]] base::Result<Pages> show(std::span<const uint64_t> pages, Pages::After after);
  // Workers find these Pages by themselves from now on, until the Pages or their memory go. False:
  // they have to reach them.
  [[nodiscard]] bool show_to_workers(Pages* pages);
  [[nodiscard]] const base::Fd& page_table() const { return shown_memory_->table(); }
  // The addresses in a page directory of two levels (pvrdma_dev_api.h), as many as `count`; at most
  // kMostPages.
  static constexpr uint64_t kMostPages = 512 * 512;
  [[nodiscard]] base::Result<std::vector<uint64_t>> directory(uint64_t address,
                                                              uint64_t count) const;

 private:
  friend class Pages;
  struct Range {
    uint64_t address, length;
    base::Fd file;  // invalid: no memory
    uint64_t offset;
    FileKey key;
  };
  GuestRam() = default;
  [[nodiscard]] const Range* find(uint64_t address) const;
  void leave(Range range);

  // Of all Pages together: each may be a mapping of this process, of which Linux permits 65,530.
  static constexpr size_t kMostRuns = 49152;
  uint8_t* base_ = nullptr;
  std::vector<Range> ranges_;  // in the order of their addresses
  std::unique_ptr<ShownMemory> shown_memory_;
  std::set<Pages*> shown_;
  size_t runs_ = 0;
  static constexpr size_t kMostComplaints = 16;  // in the log
  size_t left_out_ = 0;
};

}  // namespace vrdma::pvrdma
