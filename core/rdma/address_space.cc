#include "core/rdma/address_space.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

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
  std::unique_ptr<AddressSpace> space(new AddressSpace);
  // Anonymous memory is zero, which is nullptr in each entry; only touched pages are paid for.
  void* table = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return base::fail_errno("reserve a table of memory windows");
  ::madvise(table, kTableBytes, MADV_DONTDUMP);
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
  window = static_cast<uint8_t*>(address);
  ::madvise(address, ipc::kWindowSize, MADV_DONTDUMP);
  ::madvise(address, ipc::kWindowSize, MADV_DONTFORK);
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

base::Result<void> AddressSpace::show(const base::Fd* table, std::span<const File> files) {
  if (limits_.none) return base::fail(ENOTSUP, "no memory can be in place on this host");
  if (files.size() > files_.size()) return base::fail(E2BIG, "too many files of memory");
  base::Mapping shown_table;
  std::array<base::Mapping, ipc::kMostShownFiles> shown_files;
  const auto map = [&](const File& one, int prot, base::Mapping* to) -> base::Result<void> {
    auto mapping = base::Mapping::shared(*one.file, one.size, 0, prot);
    if (!mapping) return base::pass(std::move(mapping.error()));
    if (!is_watched(*mapping)) return base::fail(ENOTSUP, "a file of memory cannot be watched");
    *to = std::move(*mapping);
    return {};
  };
  uint64_t left = ipc::kMostShownBytes;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].size > left) return base::fail(E2BIG, "files of memory are too large");
    if (files[i].size == 0 || files[i].size % ipc::kShownPage != 0)
      return base::fail(EINVAL, "a file of memory has no whole pages");
    left -= files[i].size;
    if (auto done = map(files[i], PROT_READ | PROT_WRITE, &shown_files[i]); !done) return done;
  }
  if (table != nullptr)
    if (auto done = map({table, ipc::kPageTableSize}, PROT_READ, &shown_table); !done) return done;
  files_ = std::move(shown_files);
  table_mapping_ = std::move(shown_table);
  table_ = table != nullptr ? table_mapping_.at<const ipc::PageEntry>(0) : nullptr;
  return {};
}

uint8_t* AddressSpace::place_of(ipc::PageEntry entry) const {
  const uint32_t file = entry >> ipc::kPageBits;
  if (file == 0 || file > files_.size()) return nullptr;
  const base::Mapping& in = files_[file - 1];
  const uint64_t offset = uint64_t{entry & ((1u << ipc::kPageBits) - 1)} * ipc::kShownPage;
  return offset < in.size() ? in.bytes() + offset : nullptr;
}

uint8_t* AddressSpace::find_shown(uint64_t addr, uint64_t length, uint64_t* run) const {
  const uint64_t page = addr / ipc::kShownPage, offset = addr % ipc::kShownPage;
  const ipc::PageEntry first = entry(page);
  uint8_t* const place = place_of(first);
  if (place == nullptr) return nullptr;
  uint64_t known = ipc::kShownPage - offset;
  const uint64_t end = ipc::kMemoryArenaSize / ipc::kShownPage;
  for (uint32_t i = 1; known < length && page + i < end; ++i, known += ipc::kShownPage)
    if (entry(page + i) != first + i || place_of(first + i) == nullptr) break;
  *run = std::min(known, length);
  return place + offset;
}

}  // namespace vrdma::rdma
