#include "core/rdma/arena_heap.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace vrdma::rdma {

namespace {
constexpr uint64_t kPage = 4096;
}

ArenaHeap::Range& ArenaHeap::Range::operator=(Range&& other) noexcept {
  if (this != &other) {
    reset();
    heap_ = std::move(other.heap_);
    offset_ = other.offset_;
    size_ = other.size_;
  }
  return *this;
}

void ArenaHeap::Range::reset() {
  if (heap_ == nullptr) return;
  heap_->free(offset_, size_);
  heap_ = nullptr;
}

ArenaHeap::ArenaHeap(base::Fd arena, uint64_t begin, uint64_t end) : arena_(std::move(arena)) {
  free_.emplace(begin, end - begin);
}

base::Result<ArenaHeap::Range> ArenaHeap::allocate(uint64_t size) {
  size = (size + kPage - 1) / kPage * kPage;
  Range range;
  range.heap_ = shared_from_this();
  range.size_ = size;
  if (range.offset_ = reuse(size); range.offset_ != 0) return range;
  for (const bool again : {true, false}) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < size) continue;
      range.offset_ = it->first;
      const uint64_t left = it->second - size;
      free_.erase(it);
      if (left > 0) free_.emplace(range.offset_ + size, left);
      return range;
    }
    if (again) punch_all();  // what is kept may be what is missing
  }
  range.heap_ = nullptr;  // it is of nothing
  return base::fail(ENOMEM, "the shared memory of the session is full");
}

base::Result<ArenaHeap::Range> ArenaHeap::allocate(uint64_t size, uint64_t at) {
  if (at == 0) return allocate(size);
  size = (size + kPage - 1) / kPage * kPage;
  auto it = free_.upper_bound(at);
  if (it == free_.begin() || at % kPage != 0)
    return base::fail(EEXIST, "that shared memory is taken");
  --it;
  const uint64_t begin = it->first, end = it->first + it->second;
  if (size > end || at > end - size) return base::fail(EEXIST, "that shared memory is taken");
  free_.erase(it);
  if (at > begin) free_.emplace(begin, at - begin);
  if (at + size < end) free_.emplace(at + size, end - at - size);
  Range range;
  range.heap_ = shared_from_this();
  range.offset_ = at;
  range.size_ = size;
  return range;
}

uint64_t ArenaHeap::reuse(uint64_t size) {
  const auto it = kept_.find(size);
  if (it == kept_.end()) return 0;
  const uint64_t offset = it->second;
  kept_.erase(it);
  kept_bytes_ -= size;
  static constexpr std::array<uint8_t, 16 * kPage> kZeros{};
  for (uint64_t done = 0; done < size;) {
    const ssize_t wiped =
        ::pwrite(arena_.get(), kZeros.data(), std::min<uint64_t>(size - done, kZeros.size()),
                 static_cast<off_t>(offset + done));
    if (wiped <= 0) {  // no room for a page that its owner had not touched
      punch(offset, size);
      return 0;
    }
    done += static_cast<uint64_t>(wiped);
  }
  return offset;
}

void ArenaHeap::wipe() {
  for (const auto& [offset, size] : free_)
    ::fallocate(arena_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(size));
}

void ArenaHeap::free(uint64_t offset, uint64_t size) {
  if (left_) return;
  if (kept_bytes_ + size > kKept) return punch(offset, size);
  kept_.emplace(size, offset);
  kept_bytes_ += size;
}

void ArenaHeap::punch_all() {
  for (const auto& [size, offset] : std::exchange(kept_, {})) punch(offset, size);
  kept_bytes_ = 0;
}

void ArenaHeap::punch(uint64_t offset, uint64_t size) {
  ::fallocate(arena_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_.emplace(offset, size);
}

}  // namespace vrdma::rdma
