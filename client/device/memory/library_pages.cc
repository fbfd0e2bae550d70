#include "client/device/memory/library_pages.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "client/device/memory/raw_memory.h"
#include "core/base/fd.h"

namespace vrdma::client {

namespace {

constexpr uint64_t kHeap = 64u << 20;  // HEAP_MAX_SIZE of glibc's malloc/arena.c
constexpr uint64_t kHeapInfo = 256;    // more than heap_info has, which the state follows
// Of a thread's descriptor (struct pthread of glibc), around the head.
constexpr uint64_t kBefore = 736, kBehind = 1568;
// The thread's variables beside it: as large as they usually are.
constexpr uint64_t kVariables = 64u << 10;

// The program's memory has bytes that a sanitizer protects.
__attribute__((no_sanitize("address", "thread"))) uint64_t word_at(uint64_t addr) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(addr), __ATOMIC_RELAXED);
}

// Whether there is what begins an arena's first heap: heap_info of glibc's malloc/arena.c. It
// points to the state behind it and to no heap before it, and has two sizes in whole pages.
bool is_arena(uint64_t heap) {
  const auto word = [heap](uint64_t index) { return word_at(heap + index * sizeof(uint64_t)); };
  const auto is_size = [](uint64_t size) { return size > 0 && size <= kHeap && size % kPage == 0; };
  return word(0) > heap && word(0) <= heap + kHeapInfo && word(1) == 0 && is_size(word(2)) &&
         is_size(word(3));
}

}  // namespace

void LibraryPages::look() {
  constexpr std::chrono::milliseconds kRow(1);
  const auto now = std::chrono::steady_clock::now();
  if (!heads_.empty() && now - looked_ < kRow) return;
  looked_ = now;
  heads_.clear();
  const auto add = [this](long thread) {
    const robust_list_head* head = nullptr;
    size_t length = 0;
    if (::syscall(SYS_get_robust_list, thread, &head, &length) == 0 && head != nullptr)
      heads_.push_back(reinterpret_cast<uint64_t>(head));
  };
  add(0);  // the calling thread, also where /proc has numbers of another pid namespace
  const base::Fd folder(::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(8) char entries[4096];
  long length = 0;
  while (folder.valid() &&
         (length = ::syscall(SYS_getdents64, folder.get(), entries, sizeof entries)) > 0)
    for (long at = 0; at < length;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      if (const int thread = std::atoi(entry->d_name); thread > 0) add(thread);
    }
}

bool LibraryPages::meet(uint64_t start, uint64_t end) const {
  for (uint64_t heap = (start + kHeap - 1) / kHeap * kHeap; heap < end; heap += kHeap)
    if (is_arena(heap)) return true;
  return std::any_of(heads_.begin(), heads_.end(), [&](uint64_t head) {
    return page_down(head - kBefore) < end && page_up(head + kBehind) > start;
  });
}

void LibraryPages::narrow(uint64_t* start, uint64_t* end, uint64_t from, uint64_t to) const {
  // What lies beside may be unmapped meanwhile, so it is not looked at.
  if (const uint64_t heap = from / kHeap * kHeap; heap < from)
    *start = std::clamp(heap + kPage, *start, from);
  if (const uint64_t heap = (to + kHeap - 1) / kHeap * kHeap; heap >= to)
    *end = std::clamp(heap, to, *end);
  for (const uint64_t head : heads_) {
    if (head < from) *start = std::clamp(page_up(head + kBehind + kVariables), *start, from);
    if (head >= to) *end = std::clamp(page_down(head - kBefore - kVariables), to, *end);
  }
}

}  // namespace vrdma::client
