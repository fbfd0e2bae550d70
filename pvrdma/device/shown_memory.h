// What of the guest's memory the vdevice's worker maps itself, so that it copies from and to it at
// once: files of RAM, and a table that says where pages of this process lie in them
// (core/ipc/page_table.h).
//
// A file is shown when the first page of it is, because a file that is shown is mapped as a whole.
//
// One thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/mapping.h"
#include "core/ipc/page_table.h"

namespace vrdma::pvrdma {

// The way to the worker.
class MemoryViewer {
 public:
  virtual ~MemoryViewer() = default;
  // From the return on it uses pages of these files alone, as far as it does not reach them by way
  // of this process; the page table is the first. 0, or an errno: nothing has changed.
  [[nodiscard]] virtual int view(std::span<const int> files) = 0;
};

// What a file is, whichever descriptor names it.
struct FileKey {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileKey&) const = default;
};

class ShownMemory {
 public:
  // `viewer`: nullptr: there is none, and nothing is shown.
  [[nodiscard]] static base::Result<std::unique_ptr<ShownMemory>> create(MemoryViewer* viewer);
  ShownMemory(const ShownMemory&) = delete;
  ShownMemory& operator=(const ShownMemory&) = delete;

  // The number of a file, which is shown from now on. Nothing: it cannot be, and the log says why.
  [[nodiscard]] std::optional<uint32_t> show(const FileKey& key, const base::Fd& file);
  // The file is not shown any more, if it was. No entry names it.
  void hide(const FileKey& key);
  // When it returns, the worker knows of all entries that were cleared.
  void wait();

  // The pages of this process at `at` lie in file `number` from `offset` on; or in none.
  void enter(const uint8_t* at, uint64_t length, uint32_t number, uint64_t offset);
  void clear(const uint8_t* at, uint64_t length);

  [[nodiscard]] const base::Fd& table() const { return table_; }

 private:
  explicit ShownMemory(MemoryViewer* viewer) : viewer_(viewer) {}
  [[nodiscard]] int view() const;
  [[nodiscard]] ipc::PageEntry* entries(const uint8_t* at) const;

  struct File {
    FileKey key;
    base::Fd file;     // invalid: the number is free
    base::Fd nothing;  // of one page; shown then, as a number is a place in a list
  };
  MemoryViewer* const viewer_;
  base::Fd table_;
  base::Mapping mapping_;
  std::array<File, ipc::kMostShownFiles> files_;
  static constexpr size_t kMostComplaints = 16;  // in the log
  size_t not_shown_ = 0;
};

}  // namespace vrdma::pvrdma
