#include "core/rdma/arena_heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace vrdma::rdma {

namespace {
constexpr uint64_t kPage = 4096;

void punch_out(const base::Fd& file, uint64_t offset, uint64_t size) {
  ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
}

// Adds a range to those of `map`, joined with its neighbours.
void join(std::map<uint64_t, uint64_t>& map, uint64_t offset, uint64_t size) {
  auto next = map.lower_bound(offset);
  if (next != map.end() && offset + size == next->first) {
    size += next->second;
    next = map.erase(next);
  }
  if (next != map.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  map.emplace(offset, size);
}

}  // namespace

// Shared with a thread that punches, one at a time.
struct ArenaHeap::Holes {
  std::mutex mutex;
  base::Fd arena;                       // invalid when the heap has gone
  std::map<uint64_t, uint64_t> wanted;  // offset -> size
  std::map<uint64_t, uint64_t> done;
  bool scheduled = false;

  // On a thread of its own descriptors.
  static void punch(const std::shared_ptr<Holes>& holes, const ReachThreads::Here& here) {
    std::unique_lock lock(holes->mutex);
    while (!holes->wanted.empty() && holes->arena.valid()) {
      const auto wanted = std::exchange(holes->wanted, {});
      const base::Fd arena = here.descriptors.take(holes->arena.get());
      lock.unlock();
      for (const auto& [offset, size] : wanted) punch_out(arena, offset, size);
      lock.lock();
      for (const auto& [offset, size] : wanted) join(holes->done, offset, size);
    }
    holes->scheduled = false;
  }
};

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

ArenaHeap::ArenaHeap(base::Fd arena, uint8_t* bytes, uint64_t begin, uint64_t end,
                     std::shared_ptr<ReachThreads> threads)
    : bytes_(bytes), threads_(std::move(threads)), holes_(std::make_shared<Holes>()) {
  holes_->arena = std::move(arena);
  free_.emplace(begin, end - begin);
}

ArenaHeap::~ArenaHeap() {
  const std::lock_guard lock(holes_->mutex);
  holes_->arena.reset();
}

void ArenaHeap::exchange(base::Fd arena) {
  const std::lock_guard lock(holes_->mutex);
  holes_->arena = std::move(arena);
}

base::Result<ArenaHeap::Range> ArenaHeap::allocate(uint64_t size) {
  size = (size + kPage - 1) / kPage * kPage;
  Range range;
  range.heap_ = shared_from_this();
  range.size_ = size;
  if (range.offset_ = reuse(size); range.offset_ != 0) return range;
  collect();
  for (const bool again : {true, false}) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < size) continue;
      range.offset_ = it->first;
      const uint64_t left = it->second - size;
      free_.erase(it);
      if (left > 0) free_.emplace(range.offset_ + size, left);
      if (wipes_) wipe(range.offset_, size);
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
  // All of it, for a page that is swapped out looks like a hole. Most were there.
  std::memset(bytes_ + offset, 0, size);
  return offset;
}

// No page is made that is not there: what an earlier heap has not used is as large as the arena.
// One that is swapped out is left as it is.
void ArenaHeap::wipe(uint64_t offset, uint64_t size) {
  std::array<unsigned char, 256> there;
  for (uint64_t done = 0; done < size;) {
    const uint64_t length = std::min<uint64_t>(size - done, there.size() * kPage);
    uint8_t* const at = bytes_ + offset + done;
    const bool known = ::mincore(at, length, there.data()) == 0;
    for (uint64_t page = 0; page < length / kPage; ++page)
      if (!known || (there[page] & 1) != 0) std::memset(at + page * kPage, 0, kPage);
    done += length;
  }
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
  const std::lock_guard lock(holes_->mutex);
  if (threads_ == nullptr) {
    punch_out(holes_->arena, offset, size);
    return join(free_, offset, size);
  }
  join(holes_->wanted, offset, size);
  // If there is no thread now, with the next.
  if (!holes_->scheduled)
    holes_->scheduled =
        threads_->run([holes = holes_](ReachThreads::Here& here) { Holes::punch(holes, here); });
}

void ArenaHeap::collect() {
  const std::lock_guard lock(holes_->mutex);
  for (const auto& [offset, size] : std::exchange(holes_->done, {})) join(free_, offset, size);
}

}  // namespace vrdma::rdma
