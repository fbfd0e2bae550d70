// Memory mapped from a file, with one owner; and sealed memory files for sharing.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/base/fd.h"

namespace vrdma::base {

// Move-only; the destructor unmaps.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      address_ = std::exchange(other.address_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  // Maps `size` bytes of `fd` from `offset`, MAP_SHARED. `prot` as in mmap(2). The mapping is
  // excluded from core dumps and forked children.
  [[nodiscard]] static Result<Mapping> shared(const Fd& fd, size_t size, uint64_t offset, int prot);

  // Shows the beginning of `fd`, from now on, at the same addresses. An error leaves all as it was.
  [[nodiscard]] Result<void> show(const Fd& fd);

  [[nodiscard]] bool valid() const { return address_ != nullptr; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] uint8_t* bytes() const { return static_cast<uint8_t*>(address_); }
  // The object at `offset`. The caller must ensure that offset + sizeof(T) is within the mapping.
  template <class T>
  [[nodiscard]] T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(bytes() + offset);
  }
  void reset() {
    if (address_ != nullptr) ::munmap(address_, size_);
    address_ = nullptr;
    size_ = 0;
  }

 private:
  void* address_ = nullptr;
  size_t size_ = 0;
};

// A sparse memory file of `size` bytes, mode 0600, sealed against shrinking, growing and further
// seals, so that no holder can cause a mapping of it to fault (memfd_create(2), F_ADD_SEALS).
// `name` appears in /proc/PID/maps.
[[nodiscard]] Result<Fd> make_memfd(const char* name, uint64_t size);

}  // namespace vrdma::base
