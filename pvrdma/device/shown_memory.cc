#include "pvrdma/device/shown_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"

namespace vrdma::pvrdma {

namespace {

// vrdmad, which is another user, opens it again when it takes the session over.
base::Result<base::Fd> make_file(const char* name, uint64_t size) {
  auto file = base::make_memfd(name, size);
  if (file && ::fchmod(file->get(), 0666) != 0) return base::fail_errno("set the mode of a file");
  return file;
}

}  // namespace

base::Result<std::unique_ptr<ShownMemory>> ShownMemory::create(MemoryViewer* viewer) {
  std::unique_ptr<ShownMemory> shown(new ShownMemory(viewer));
  auto table = make_file("vrdma-pages", ipc::kPageTableSize);
  if (!table) return base::pass(std::move(table.error()));
  auto mapping = base::Mapping::shared(*table, ipc::kPageTableSize, 0, PROT_READ | PROT_WRITE);
  if (!mapping) return base::pass(std::move(mapping.error()));
  shown->table_ = std::move(*table);
  shown->mapping_ = std::move(*mapping);
  for (File& one : shown->files_) {
    auto nothing = make_file("vrdma-nothing", ipc::kShownPage);
    if (!nothing) return base::pass(std::move(nothing.error()));
    one.nothing = std::move(*nothing);
  }
  return shown;
}

int ShownMemory::view() const {
  std::vector<int> all;
  for (size_t i = files_.size(); i > 0; --i)
    if (files_[i - 1].file.valid() || !all.empty())
      all.push_back(files_[i - 1].file.valid() ? files_[i - 1].file.get()
                                               : files_[i - 1].nothing.get());
  if (!all.empty()) all.push_back(table_.get());
  std::ranges::reverse(all);
  return viewer_->view(all);
}

std::optional<uint32_t> ShownMemory::show(const FileKey& key, const base::Fd& file) {
  if (viewer_ == nullptr) return std::nullopt;
  const auto is = [&](const File& one) { return one.file.valid() && one.key == key; };
  auto found = std::ranges::find_if(files_, is);
  const auto number = [&] { return static_cast<uint32_t>(found - files_.begin()); };
  if (found != files_.end()) return number();
  const auto refuse = [&](const std::string& why) {
    if (++not_shown_ <= kMostComplaints)
      base::log_warning("workers reach the guest's memory, which is slower: " + why);
    return std::nullopt;
  };
  found = std::ranges::find_if(files_, [](const File& one) { return !one.file.valid(); });
  if (found == files_.end()) return refuse("it lies in too many files");
  auto own = file.duplicate();
  if (!own) return refuse(own.error().message());
  found->key = key;
  found->file = std::move(*own);
  if (const int error = view(); error != 0) {
    found->file.reset();
    return refuse(std::string("vrdmad does not map it: ") + std::strerror(error));
  }
  return number();
}

void ShownMemory::hide(const FileKey& key) {
  const auto found = std::ranges::find_if(
      files_, [&](const File& one) { return one.file.valid() && one.key == key; });
  if (found == files_.end()) return;
  // A worker that takes the session over meanwhile looks for it.
  const base::Fd until_told = std::move(found->file);
  wait();
}

// An error: the session has ended, and with it all that uses memory.
void ShownMemory::wait() {
  if (viewer_ != nullptr) (void)view();
}

ipc::PageEntry* ShownMemory::entries(const uint8_t* at) const {
  return mapping_.at<ipc::PageEntry>(0) + reinterpret_cast<uintptr_t>(at) / ipc::kShownPage;
}

void ShownMemory::enter(const uint8_t* at, uint64_t length, uint32_t number, uint64_t offset) {
  ipc::PageEntry* const first = entries(at);
  for (uint64_t i = 0; i < length / ipc::kShownPage; ++i)
    __atomic_store_n(first + i, ipc::page_entry(number, offset / ipc::kShownPage + i),
                     __ATOMIC_RELAXED);
}

void ShownMemory::clear(const uint8_t* at, uint64_t length) {
  ipc::PageEntry* const first = entries(at);
  for (uint64_t i = 0; i < length / ipc::kShownPage; ++i)
    __atomic_store_n(first + i, ipc::PageEntry{0}, __ATOMIC_RELAXED);
}

}  // namespace vrdma::pvrdma
