#include "core/rdma/arena_heap.h"

#include <fcntl.h>

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
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < size) continue;
    Range range;
    range.heap_ = shared_from_this();
    range.offset_ = it->first;
    range.size_ = size;
    const uint64_t left = it->second - size;
    free_.erase(it);
    if (left > 0) free_.emplace(range.offset_ + size, left);
    return range;
  }
  return base::fail(ENOMEM, "the shared memory of the session is full");
}

void ArenaHeap::free(uint64_t offset, uint64_t size) {
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
