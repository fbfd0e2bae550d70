#include "core/rdma/address_space.h"

#include <sys/mman.h>

#include <cerrno>

namespace vrdma::rdma {

namespace {
constexpr uint64_t kWindows = ipc::kMemoryArenaSize / ipc::kWindowSize;
constexpr size_t kTableBytes = kWindows * sizeof(std::atomic<uint8_t*>);
constexpr uint64_t kPageBytes = 4096;
}  // namespace

std::unique_ptr<AddressSpace> AddressSpace::own() {
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  space->own_ = true;
  return space;
}

base::Result<std::unique_ptr<AddressSpace>> AddressSpace::of_arena(base::Fd arena,
                                                                   Windows windows) {
  std::vector<Extent> all(1);
  all[0] = {0, ipc::kMemoryArenaSize, std::move(arena), 0};
  return of_extents(std::move(all), windows);
}

base::Result<std::unique_ptr<AddressSpace>> AddressSpace::of_extents(std::vector<Extent> extents,
                                                                     Windows windows) {
  if (extents.size() > kMostExtents) return base::fail(E2BIG, "memory of too many extents");
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if ((extent.addr | extent.length | extent.offset) % kPageBytes != 0 || extent.length == 0 ||
        extent.addr < end || extent.length > ipc::kMemoryArenaSize - extent.addr ||
        extent.addr >= ipc::kMemoryArenaSize || extent.offset > INT64_MAX - extent.length)
      return base::fail(EINVAL, "an extent of memory is misaligned, out of order or out of range");
    end = extent.addr + extent.length;
  }
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  if (extents.size() != 1 || extents[0].length != ipc::kMemoryArenaSize) {
    auto nothing = base::make_memfd("vrdma-nothing", 0);
    if (!nothing) return base::pass(std::move(nothing.error()));
    space->nothing_ = std::move(*nothing);
  }
  // Anonymous memory is zero, which is nullptr in each entry; only touched pages are paid for.
  void* table = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return base::fail_errno("reserve a table of memory windows");
  ::madvise(table, kTableBytes, MADV_DONTDUMP);
  space->extents_ = std::move(extents);
  space->limits_ = windows;
  space->windows_ = static_cast<std::atomic<uint8_t*>*>(table);
  return space;
}

AddressSpace::~AddressSpace() {
  if (windows_ == nullptr) return;
  for (const uint64_t index : mapped_) ::munmap(windows_[index].load(), ipc::kWindowSize);
  ::munmap(windows_, kTableBytes);
}

uint8_t* AddressSpace::map_window(uint64_t index) {
  if (limits_.none) return nullptr;
  const std::lock_guard lock(mutex_);
  uint8_t* window = windows_[index].load(std::memory_order_relaxed);
  if (window != nullptr) return window;
  if (limits_.max != 0 && mapped_.size() >= limits_.max) unmap_oldest();
  const uint64_t begin = index * ipc::kWindowSize, end = begin + ipc::kWindowSize;
  // The arena, or a place for what there is of extents.
  const bool whole = !nothing_.valid();
  void* address = ::mmap(nullptr, ipc::kWindowSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                         whole ? extents_[0].file.get() : nothing_.get(),
                         whole ? static_cast<off_t>(begin) : 0);
  if (address == MAP_FAILED) return nullptr;
  window = static_cast<uint8_t*>(address);
  bool shown = whole || std::all_of(extents_.begin(), extents_.end(), [&](const Extent& extent) {
                 const uint64_t from = std::max(begin, extent.addr);
                 const uint64_t to = std::min(end, extent.addr + extent.length);
                 return from >= to || map_piece(window + (from - begin), extent, from, to - from);
               });
  ::madvise(address, ipc::kWindowSize, MADV_DONTDUMP);
  ::madvise(address, ipc::kWindowSize, MADV_DONTFORK);
  if (shown && limits_.watch != nullptr) shown = limits_.watch(window, ipc::kWindowSize);
  if (!shown) {
    ::munmap(window, ipc::kWindowSize);
    return nullptr;
  }
  mapped_.push_back(index);
  windows_[index].store(window, std::memory_order_release);
  return window;
}

bool AddressSpace::map_piece(uint8_t* place, const Extent& extent, uint64_t addr,
                             uint64_t length) const {
  return ::mmap(place, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, extent.file.get(),
                static_cast<off_t>(extent.offset + (addr - extent.addr))) != MAP_FAILED;
}

void AddressSpace::unmap_oldest() {
  if (mapped_.front() == last_) {  // in use together with the new one
    mapped_.push_back(mapped_.front());
    mapped_.pop_front();
  }
  ::munmap(windows_[mapped_.front()].exchange(nullptr), ipc::kWindowSize);
  mapped_.pop_front();
}

}  // namespace vrdma::rdma
