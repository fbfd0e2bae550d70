#include "core/rdma/address_space.h"

#include <sys/mman.h>

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

base::Result<std::unique_ptr<AddressSpace>> AddressSpace::of_arena(base::Fd arena,
                                                                   Windows windows) {
  // Anonymous memory is zero, which is nullptr in each entry; only touched pages are paid for.
  void* table = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return base::fail_errno("reserve a table of memory windows");
  ::madvise(table, kTableBytes, MADV_DONTDUMP);
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  space->arena_ = std::move(arena);
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
  void* address = ::mmap(nullptr, ipc::kWindowSize, PROT_READ | PROT_WRITE, MAP_SHARED,
                         arena_.get(), static_cast<off_t>(index * ipc::kWindowSize));
  if (address == MAP_FAILED) return nullptr;
  ::madvise(address, ipc::kWindowSize, MADV_DONTDUMP);
  ::madvise(address, ipc::kWindowSize, MADV_DONTFORK);
  window = static_cast<uint8_t*>(address);
  if (limits_.watch != nullptr && !limits_.watch(window, ipc::kWindowSize)) {
    ::munmap(window, ipc::kWindowSize);
    return nullptr;
  }
  mapped_.push_back(index);
  windows_[index].store(window, std::memory_order_release);
  return window;
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
