#include "core/rdma/address_space.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/ipc/layout.h"

namespace vrdma::rdma {

namespace {
constexpr uint64_t kWindows = ipc::kMemoryArenaSize / ipc::kWindowSize;
constexpr size_t kTableBytes = kWindows * sizeof(std::atomic<uint8_t*>);
}  // namespace

std::unique_ptr<AddressSpace> AddressSpace::own() {
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  space->own_ = true;
  return space;
}

base::Result<std::unique_ptr<AddressSpace>> AddressSpace::of_arena(base::Fd arena) {
  // Anonymous memory is zero, which is nullptr in each entry; only touched pages are paid for.
  void* table = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return base::fail_errno("reserve a table of memory windows");
  ::madvise(table, kTableBytes, MADV_DONTDUMP);
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  space->arena_ = std::move(arena);
  space->windows_ = static_cast<std::atomic<uint8_t*>*>(table);
  return space;
}

AddressSpace::~AddressSpace() {
  if (windows_ == nullptr) return;
  for (uint8_t* window : mapped_) ::munmap(window, ipc::kWindowSize);
  ::munmap(windows_, kTableBytes);
}

uint8_t* AddressSpace::map_window(uint64_t index) {
  const std::lock_guard lock(mutex_);
  uint8_t* window = windows_[index].load(std::memory_order_relaxed);
  if (window != nullptr) return window;
  void* address = ::mmap(nullptr, ipc::kWindowSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                         arena_.get(), static_cast<off_t>(index * ipc::kWindowSize));
  if (address == MAP_FAILED) return nullptr;
  ::madvise(address, ipc::kWindowSize, MADV_DONTDUMP);
  ::madvise(address, ipc::kWindowSize, MADV_DONTFORK);
  window = static_cast<uint8_t*>(address);
  mapped_.push_back(window);
  windows_[index].store(window, std::memory_order_release);
  return window;
}

uint8_t* AddressSpace::at(uint64_t addr, uint64_t length, uint64_t* run) {
  if (own_) {
    *run = length;
    return reinterpret_cast<uint8_t*>(addr);
  }
  if (addr >= ipc::kMemoryArenaSize) return nullptr;
  const uint64_t index = addr / ipc::kWindowSize;
  const uint64_t offset = addr % ipc::kWindowSize;
  uint8_t* window = windows_[index].load(std::memory_order_acquire);
  if (window == nullptr) window = map_window(index);
  if (window == nullptr) return nullptr;
  *run = std::min(length, ipc::kWindowSize - offset);
  return window + offset;
}

}  // namespace vrdma::rdma
