// Memory of a member, of all kinds that a program registers.
#pragma once

#include <span>
#include <vector>

#include "tests/integrity/plan.h"

namespace integrity {

// Bytes that this object owns; guarded by its kind's own means only.
class Block {
 public:
  Block(Memory memory, size_t size);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&&) = delete;
  [[nodiscard]] std::span<uint8_t> bytes() const { return bytes_; }

 private:
  Memory memory_;
  std::span<uint8_t> bytes_;
};

}  // namespace integrity
