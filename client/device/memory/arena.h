// The memory arena of this process: a memory file in which offset = virtual address. Its functions
// write only to the stack and take no lock.
#pragma once

#include <cstdint>

#include "client/device/memory/maps.h"
#include "core/base/fd.h"

namespace vrdma::client {

class Arena {
 public:
  Arena() = default;  // none
  explicit Arena(base::Fd file);

  [[nodiscard]] const base::Fd& file() const { return file_; }
  [[nodiscard]] bool valid() const { return file_.valid(); }
  [[nodiscard]] bool is_in(const Mapped& one) const { return one.shared && one.inode == inode_; }
  // Whether the descriptor is of the file that it was made of.
  [[nodiscard]] bool is_same_file() const;
  // True if `one` maps the arena at offset = address.
  [[nodiscard]] bool is_home(const Mapped& one) const {
    return is_in(one) && one.offset == one.start;
  }
  // Frees the pages of [start, end).
  void punch(uint64_t start, uint64_t end) const;
  // Private memory of the size and protection of `one`, which maps the arena, with its first
  // `genuine` bytes and zeroes behind them; nullptr: no memory.
  [[nodiscard]] void* copy_of(const Mapped& one, uint64_t genuine) const;

 private:
  base::Fd file_;
  uint64_t inode_ = 0;
};

// Moves a copy of `one` to where `one` is. False: the copy is unmapped instead.
[[nodiscard]] bool replace(const Mapped& one, void* copy);

}  // namespace vrdma::client
