#include "pvrdma/device/guest_ram.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/base/log.h"
#include "pvrdma/encoding/registers.h"

namespace vrdma::pvrdma {

namespace {

std::string in_hex(uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// Nothing, or zeros, in place of what was mapped.
bool clear(uint8_t* at, uint64_t length, Pages::After after) {
  const int prot = after == Pages::After::kZeros ? PROT_READ | PROT_WRITE : PROT_NONE;
  return ::mmap(at, length, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

uint8_t* reserve(uint64_t length) {
  void* const at =
      ::mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

bool show_file(uint8_t* at, uint64_t length, const base::Fd& file, uint64_t offset) {
  return ::mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
                static_cast<off_t>(offset)) != MAP_FAILED;
}

// Why a file cannot be the memory of a guest; empty: it can, and `key` is set.
std::string obstacle(const base::Fd& file, uint64_t offset, uint64_t length, FileKey* key) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return "fstat fails";
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return "its file is not sealed against shrinking; use -object memory-backend-memfd,share=on";
  *key = {status.st_dev, status.st_ino};
  const auto size = static_cast<uint64_t>(status.st_size);
  if (offset > size || length > size - offset) return "its file is too short";
  return {};
}

}  // namespace

// --- Pages ---

Pages& Pages::operator=(Pages&& other) noexcept {
  if (this == &other) return *this;
  reset();
  ram_ = std::exchange(other.ram_, nullptr);
  bytes_ = std::exchange(other.bytes_, nullptr);
  size_ = std::exchange(other.size_, 0);
  after_ = other.after_;
  is_shown_ = std::exchange(other.is_shown_, false);
  runs_ = std::move(other.runs_);
  other.runs_.clear();
  if (ram_ != nullptr) {
    ram_->shown_.erase(&other);
    ram_->shown_.insert(this);
  }
  return *this;
}

void Pages::reset() {
  if (ram_ == nullptr) return;
  ram_->shown_.erase(this);
  ram_->runs_ -= runs_.size();
  hide(0, size_);
  is_shown_ = false;
  ::munmap(bytes_, size_);
  ram_ = nullptr;
  bytes_ = nullptr;
  size_ = 0;
  runs_.clear();
}

bool Pages::take_away(uint64_t address, uint64_t length) {
  bool any = false;
  for (const Run& run : runs_) {
    const uint64_t from = std::max(run.address, address);
    const uint64_t to = std::min(run.address + run.length, address + length);
    if (from >= to) continue;
    hide(run.at + (from - run.address), run.at + (to - run.address));
    // It would stay the guest's otherwise.
    if (!clear(bytes_ + run.at + (from - run.address), to - from, after_)) std::abort();
    any = true;
  }
  return any && is_shown_;
}

void Pages::hide(uint64_t from, uint64_t to) {
  if (is_shown_) ram_->shown_memory_->clear(bytes_ + from, to - from);
}

// --- GuestRam ---

base::Result<std::unique_ptr<GuestRam>> GuestRam::create(MemoryViewer* viewer) {
  std::unique_ptr<GuestRam> ram(new GuestRam);
  auto shown = ShownMemory::create(viewer);
  if (!shown) return base::pass(std::move(shown.error()));
  ram->shown_memory_ = std::move(*shown);
  ram->base_ = reserve(kEnd);
  if (ram->base_ == nullptr) return base::fail_errno("reserve addresses for the guest's memory");
  return ram;
}

GuestRam::~GuestRam() {
  if (base_ != nullptr) ::munmap(base_, kEnd);
}

int GuestRam::map(uint64_t address, uint64_t length, base::Fd file, uint64_t offset) {
  if (ranges_.size() >= kMostRanges) return ENOSPC;
  const auto next = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.address + range.length > address;
  });
  if (next != ranges_.end() && next->address < address + length) return EEXIST;
  Range range{address, length, {}, offset, {}};
  if (file.valid()) {
    std::string why = obstacle(file, offset, length, &range.key);
    if (why.empty() && (address >= kEnd || length > kEnd - address)) why = "it lies too high";
    if (why.empty() && !show_file(base_ + address, length, file, offset))
      why = errno == EINVAL ? "it lies in huge pages; use no hugetlb=on" : std::strerror(errno);
    if (why.empty())
      range.file = std::move(file);
    else if (++left_out_ <= kMostComplaints)
      base::log_warning("the device cannot use the guest's memory at " + in_hex(address) + ", " +
                        std::to_string(length) + " bytes: " + why);
  }
  ranges_.insert(next, std::move(range));
  return 0;
}

// `range` is none of ranges_ any more.
void GuestRam::leave(Range range) {
  if (!range.file.valid()) return;
  bool any_shown = false;
  for (Pages* const pages : shown_)
    if (pages->take_away(range.address, range.length)) any_shown = true;
  const bool is_last = std::ranges::none_of(
      ranges_, [&](const Range& other) { return other.file.valid() && other.key == range.key; });
  if (is_last)
    shown_memory_->hide(range.key);
  else if (any_shown)
    shown_memory_->wait();
  if (!clear(base_ + range.address, range.length, Pages::After::kNothing)) std::abort();
}

int GuestRam::unmap(uint64_t address, uint64_t length) {
  const auto found = std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.address == address && range.length == length;
  });
  if (found == ranges_.end()) return ENOENT;
  Range gone = std::move(*found);
  ranges_.erase(found);
  leave(std::move(gone));
  return 0;
}

void GuestRam::unmap_all() {
  while (!ranges_.empty()) {
    Range gone = std::move(ranges_.back());
    ranges_.pop_back();
    leave(std::move(gone));
  }
}

const GuestRam::Range* GuestRam::find(uint64_t address) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t wanted, const Range& range) { return wanted < range.address; });
  if (after == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(after);
  return range.file.valid() && address - range.address < range.length ? &range : nullptr;
}

uint8_t* GuestRam::at(uint64_t address, uint64_t length) const {
  const Range* const range = find(address);
  if (range == nullptr) return nullptr;
  if (length > range->length - (address - range->address)) return nullptr;
  return base_ + address;
}

uint64_t GuestRam::top() const {
  uint64_t end = 0;
  for (const Range& range : ranges_)
    if (range.file.valid()) end = range.address + range.length;
  return end;
}

base::Result<Pages> GuestRam::show(std::span<const uint64_t> pages, Pages::After after) {
  if (pages.empty() || pages.size() > kMostPages)
    return base::fail(EINVAL, "a list of no pages, or of too many");
  std::vector<Pages::Run> runs;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] % kPageSize != 0 || at(pages[i], kPageSize) == nullptr)
      return base::fail(EFAULT, "page " + std::to_string(i) + " of a list is at " +
                                    in_hex(pages[i]) + ", where the guest has no memory");
    // Two ranges that follow one another may lie in different files.
    if (!runs.empty() && runs.back().address + runs.back().length == pages[i] &&
        find(pages[i]) == find(runs.back().address))
      runs.back().length += kPageSize;
    else
      runs.push_back({pages[i], kPageSize, i * kPageSize});
  }
  if (runs.size() > kMostRuns - runs_)
    return base::fail(ENOMEM, "the guest's memory is in too many pieces");
  Pages shown;
  shown.bytes_ = reserve(pages.size() * kPageSize);
  if (shown.bytes_ == nullptr) return base::fail_errno("reserve addresses for pages of the guest");
  shown.size_ = pages.size() * kPageSize;
  shown.after_ = after;
  shown.ram_ = this;
  shown.runs_ = std::move(runs);
  runs_ += shown.runs_.size();
  shown_.insert(&shown);
  for (const Pages::Run& run : shown.runs_) {
    const Range& range = *find(run.address);
    if (!show_file(shown.bytes_ + run.at, run.length, range.file,
                   range.offset + (run.address - range.address)))
      return base::fail_errno("map pages of the guest");
  }
  return shown;
}

bool GuestRam::show_to_workers(Pages* pages) {
  for (const Pages::Run& run : pages->runs_) {
    const Range* const range = find(run.address);
    const auto number =
        range != nullptr ? shown_memory_->show(range->key, range->file) : std::optional<uint32_t>();
    if (!number) {
      pages->hide(0, pages->size_);
      pages->is_shown_ = false;
      return false;
    }
    pages->is_shown_ = true;
    shown_memory_->enter(pages->bytes_ + run.at, run.length, *number,
                         range->offset + (run.address - range->address));
  }
  return true;
}

base::Result<std::vector<uint64_t>> GuestRam::directory(uint64_t address, uint64_t count) const {
  constexpr uint64_t kEntries = kPageSize / sizeof(uint64_t);
  if (count == 0 || count > kMostPages)
    return base::fail(EINVAL, "a page directory of " + std::to_string(count) + " pages");
  const auto entries = [&](uint64_t page, uint64_t* to, uint64_t wanted) {
    const uint8_t* const from = page % kPageSize == 0 ? at(page, kPageSize) : nullptr;
    if (from != nullptr) std::memcpy(to, from, wanted * sizeof(uint64_t));
    return from != nullptr;
  };
  std::vector<uint64_t> tables((count + kEntries - 1) / kEntries), pages(count);
  bool known = entries(address, tables.data(), tables.size());
  for (uint64_t i = 0; known && i < tables.size(); ++i)
    known =
        entries(tables[i], pages.data() + i * kEntries, std::min(kEntries, count - i * kEntries));
  if (!known)
    return base::fail(EFAULT,
                      "the page directory at " + in_hex(address) + " is not in the guest's memory");
  return pages;
}

}  // namespace vrdma::pvrdma
