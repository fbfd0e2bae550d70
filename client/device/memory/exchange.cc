// Exchange of pages that other threads may write to, for the memory table.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <span>
#include <utility>

#include "client/device/memory/raw_memory.h"
#include "client/device/memory/table.h"
#include "core/base/single_thread.h"

namespace vrdma::client {

namespace {

// Bytes copied while the other threads are held; takes a few milliseconds.
constexpr uint64_t kChunk = 16u << 20;
// Bytes beside a range that may be converted with it.
constexpr uint64_t kNeighbourhood = 256u << 10;

// Bytes of an exchange after which the threads may rest.
constexpr uint64_t kSmall = 2 * kNeighbourhood;

// Whether [start, end) is still what it was found to be.
bool is_plain(uint64_t start, uint64_t end, int prot) {
  struct Seen {
    int prot;
    uint64_t at;
  } seen{prot, start};
  const SeeMapped see = [](const Mapped& one, void* with) {
    auto& all = *static_cast<Seen*>(with);
    if (one.start == all.at && one.anonymous && one.prot == all.prot) all.at = one.end;
  };
  return visit_mappings(start, end, see, &seen) && seen.at == end;
}

// What /proc/self/pagemap says of the pages of [start, end) (proc_pid_pagemap(5)). False: it says
// nothing.
bool read_pages(uint64_t start, uint64_t end, std::span<uint64_t> pages) {
  const size_t size = (end - start) / kPage * sizeof(uint64_t);
  if (size > pages.size_bytes()) return false;
  const base::Fd file(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  return file.valid() && ::pread(file.get(), pages.data(), size,
                                 static_cast<off_t>(start / kPage * sizeof(uint64_t))) ==
                             static_cast<ssize_t>(size);
}
// In memory or in swap.
constexpr bool exists(uint64_t page) { return (page >> 62) != 0; }

// Whether beside `one` at most seven pages of [start, end) are missing for each that exists: what
// is exchanged while threads are held is allocated first.
bool is_mostly_there(const Mapped& one, uint64_t start, uint64_t end) {
  std::array<uint64_t, kNeighbourhood / kPage> pages;
  uint64_t there = (one.end - one.start) / kPage;
  const auto count = [&](uint64_t from, uint64_t to) {
    if (from >= to || !read_pages(from, to, pages)) return;
    there += static_cast<uint64_t>(
        std::count_if(pages.begin(), pages.begin() + (to - from) / kPage, exists));
  };
  count(start, one.start);
  count(one.end, end);
  return 8 * there >= (end - start) / kPage;
}

// Blocks writers of a range until it is destroyed. A process with one thread needs no protection.
class WritersHeld {
 public:
  WritersHeld(int userfaultfd, uint64_t start, uint64_t end, bool needed)
      : userfaultfd_(userfaultfd), range_{start, end - start} {
    if (!needed) {
      ok_ = true;
      return;
    }
    uffdio_register reg{};
    reg.range = range_;
    reg.mode = UFFDIO_REGISTER_MODE_WP;
    if (::ioctl(userfaultfd_, UFFDIO_REGISTER, &reg) != 0) return;
    registered_ = true;
    uffdio_writeprotect protect{};
    protect.range = range_;
    protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
    ok_ = ::ioctl(userfaultfd_, UFFDIO_WRITEPROTECT, &protect) == 0;
  }
  ~WritersHeld() {
    if (!registered_) return;
    // If the range was remapped, its registration ended with the old mapping, and only the sleepers
    // remain. If not, this also removes the protection.
    ::ioctl(userfaultfd_, UFFDIO_UNREGISTER, &range_);
    ::ioctl(userfaultfd_, UFFDIO_WAKE, &range_);
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  int userfaultfd_;
  uffdio_range range_;
  bool registered_ = false;
  bool ok_ = false;
};

}  // namespace

int MemoryTable::open_userfaultfd() {
  if (userfaultfd_.valid() || !device_.valid()) return userfaultfd_.get();
  base::Fd fd(::ioctl(device_.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC));
  if (!fd.valid()) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) return -1;
  userfaultfd_ = std::move(fd);
  return userfaultfd_.get();
}

// Copies `from`, which is or was at [start, end), into the arena. Signals are blocked.
bool MemoryTable::fill_arena(const void* from, uint64_t start, uint64_t end) {
  // write(2) allocates whole pages without zeroing them first, and without a fault for each.
  uint64_t at = start;
  while (at < end) {
    const long count = raw::call(SYS_pwrite64, arena_.file().get(),
                                 static_cast<const uint8_t*>(from) + (at - start), end - at, at);
    if (count <= 0) break;
    at += static_cast<uint64_t>(count);
  }
  if (at == end) return true;
  if (errno != EFBIG) return false;
  // RLIMIT_FSIZE does not limit memory, and a mapping ignores it. The kernel has sent a signal to
  // this thread, which the program must not see.
  sigset_t limit;
  ::sigemptyset(&limit);
  ::sigaddset(&limit, SIGXFSZ);
  const timespec now{};
  ::sigtimedwait(&limit, nullptr, &now);
  const size_t size = end - start;
  void* shared = raw::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                           arena_.file().get(), static_cast<off_t>(start));
  if (shared == MAP_FAILED) return false;
  copy_pages(shared, from, size);
  raw::munmap(shared, size);
  return true;
}

// Programs register many small ranges next to each other. So pages are converted together with
// those beside them where no other thread can unmap, move or empty these meanwhile: what is about
// to be registered it leaves alone, but it does not know what lies beside that.
bool MemoryTable::convert(const Mapped& one, const Asker& asker, ipc::Reached* why) {
  const bool alone = base::is_single_threaded() || watch_.is_alone_with();
  const int userfaultfd = alone ? -1 : open_userfaultfd();
  uint64_t start = one.start, end = one.end;
  if (userfaultfd < 0) widen(one, &start, &end);
  if (!alone && userfaultfd < 0 && !is_mostly_there(one, start, end)) {
    start = one.start;
    end = one.end;
  }
  if (alone || userfaultfd >= 0) {
    *why = ipc::Reached::kOther;
    const uint64_t reached = convert_guarded(one, start, end, userfaultfd, alone);
    if (reached < one.end) {
      if (reached > start) (void)settle(start, reached);
      return false;
    }
    end = reached;
  } else {
    uint64_t reached = convert_held(start, end, one.prot, asker, why);
    if (reached < one.end && *why == ipc::Reached::kOther)
      reached = convert_held(std::max(reached, one.start), one.end, one.prot, asker, why);
    if (reached < one.end) return false;
    start = one.start,
    end = one.end;  // turn() has settled the pages; whether all of these is asked
  }
  if (!settle(start, end)) {
    *why = ipc::Reached::kUnseen;
    return false;
  }
  // Maps many pages per fault, instead of one at each first write. Failure is harmless.
  (void)raw::madvise(reinterpret_cast<void*>(one.start), one.end - one.start, MADV_POPULATE_READ);
  return true;
}

void MemoryTable::widen(const Mapped& one, uint64_t* start, uint64_t* end) const {
  *start = std::max(one.whole_start, one.start / kNeighbourhood * kNeighbourhood);
  *end = std::min(one.whole_end, (one.end + kNeighbourhood - 1) / kNeighbourhood * kNeighbourhood);
  kept_out_.narrow(start, end, one.start, one.end);
  library_.narrow(start, end, one.start, one.end);
}

// False: the watcher does not see what happens to these pages.
bool MemoryTable::settle(uint64_t start, uint64_t end) {
  (void)raw::madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTFORK);
  return watch_.cover(start, end);
}

// For a chunk at a time, because both the old pages and the new ones count as memory of the program
// until the old ones are gone.
uint64_t MemoryTable::convert_guarded(const Mapped& one, uint64_t start, uint64_t end,
                                      int userfaultfd, bool alone) {
  // A writer could create missing pages despite the protection.
  const bool writable = (one.prot & PROT_WRITE) != 0;
  if (!alone && raw::madvise(reinterpret_cast<void*>(start), end - start,
                             writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0)
    return start;
  const SignalsBlocked no_signals;
  const std::lock_guard lock(exchange_);
  const WritersHeld writers(userfaultfd, start, end, !alone);
  if (!writers.ok()) return start;
  uint64_t at = start;
  while (at < end) {
    const uint64_t stop = std::min(end, at + kChunk);
    if (!fill_arena_with(one, at, stop) ||
        raw::mmap(reinterpret_cast<void*>(at), stop - at, one.prot, MAP_SHARED | MAP_FIXED,
                  arena_.file().get(), static_cast<off_t>(at)) == MAP_FAILED) {
      arena_.punch(at, stop);
      break;
    }
    at = stop;
  }
  return at;
}

// Of `one` all pages; beside it those that exist, because a missing one is zeroes in the arena too,
// and costs nothing there.
bool MemoryTable::fill_arena_with(const Mapped& one, uint64_t start, uint64_t end) {
  const auto fill = [this](uint64_t from, uint64_t to) {
    return from >= to || fill_arena(reinterpret_cast<const void*>(from), from, to);
  };
  const auto fill_existing = [&](uint64_t from, uint64_t to) {
    std::array<uint64_t, kNeighbourhood / kPage> pages;
    if (from >= to) return true;
    if (!read_pages(from, to, pages)) return fill(from, to);
    for (uint64_t at = from; at < to;) {
      uint64_t stop = at;
      while (stop < to && exists(pages[(stop - from) / kPage])) stop += kPage;
      if (!fill(at, stop)) return false;
      at = std::max(stop, at + kPage);
    }
    return true;
  };
  return fill_existing(start, std::min(end, one.start)) &&
         fill(std::max(start, one.start), std::min(end, one.end)) &&
         fill_existing(std::max(start, one.end), end);
}

// The daemon holds the other threads, for one chunk at a time. A thread that waits for the watcher
// cannot be held until the watcher has run.
uint64_t MemoryTable::convert_held(uint64_t start, uint64_t end, int prot, const Asker& asker,
                                   ipc::Reached* why) {
  constexpr int kTries = 4;
  constexpr timespec kNap{0, 1'000'000};
  uint64_t at = start;
  int tries = 0;
  while (at < end) {
    const uint64_t reached = convert_chunk(at, std::min(end, at + kChunk), prot, asker, why);
    const bool late = *why == ipc::Reached::kDeadline || *why == ipc::Reached::kNot;
    if (reached == at && (!late || ++tries == kTries)) break;
    if (reached == at) ::nanosleep(&kNap, nullptr);
    at = reached;
  }
  if (*why == ipc::Reached::kNot) *why = ipc::Reached::kDeadline;
  return at;
}

// `why`: kNot if the watcher was at work.
uint64_t MemoryTable::convert_chunk(uint64_t start, uint64_t end, int prot, const Asker& asker,
                                    ipc::Reached* why) {
  const int advice = (prot & PROT_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  *why = ipc::Reached::kOther;
  // The pages are allocated while all threads run.
  if (!spare_.make() || raw::madvise(reinterpret_cast<void*>(start), end - start, advice) != 0 ||
      ::fallocate(arena_.file().get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
                  static_cast<off_t>(end - start)) != 0)
    return start;
  uint64_t at = start;
  {
    const SignalsBlocked no_signals;
    Standstill still = holds_.begin(asker);
    if (still.reached() == ipc::Reached::kNot && !exchange_.try_lock()) {
      *why = ipc::Reached::kNot;
    } else if (still.reached() == ipc::Reached::kNot) {
      const std::lock_guard lock(exchange_, std::adopt_lock);
      while (at < end && still.reached() == ipc::Reached::kNot && spare_.size() != 0) {
        const uint64_t stop = std::min(end, at + spare_.size());
        at = turn(still, at, stop, prot);
        if (at < stop) break;
      }
    }
    if (still.reached() != ipc::Reached::kNot) *why = still.reached();
    holds_.end(std::move(still), at == end && end - start <= kSmall);
  }
  if (at < end) {
    const std::lock_guard lock(exchange_);
    arena_.punch(at, end);
  }
  return at;
}

// Nothing here may wait for another thread. Returns how far it came; the rest is unchanged. The
// threads are held until the pages are watched.
uint64_t MemoryTable::turn(Standstill& still, uint64_t start, uint64_t end, int prot) {
  const uint64_t reached = exchange_held(still, start, end, prot);
  if (reached == start) return start;
  const bool held = still.begin_exchange(ipc::HoldPhase::kExchanging);
  (void)settle(start, reached);
  if (held) (void)still.end_exchange();
  return reached;
}

uint64_t MemoryTable::exchange_held(Standstill& still, uint64_t start, uint64_t end, int prot) {
  const size_t size = end - start;
  if (!is_plain(start, end, prot)) return start;
  copy_pages(spare_.copy(), reinterpret_cast<void*>(start), size);
  if (!fill_arena(spare_.copy(), start, end) || !spare_.keep(start, size)) return start;
  uint64_t at = start;
  while (at < end && still.begin_exchange(spare_.phase())) {
    const uint64_t step =
        spare_.exchange(at, std::min(end - at, Spare::kStep), prot, arena_.file(), at);
    const bool in_time = still.end_exchange();
    if (step == 0) break;
    if (in_time) {
      spare_.forget(step);
      at += step;
      continue;
    }
    // Copies late writes to the old pages into the new ones, as soon as possible.
    uint8_t* const now = spare_.copy() + Spare::kMost;
    if ((prot & PROT_WRITE) != 0 && spare_.recall(now, step))
      carry_over(spare_.copy() + (at - start), now, reinterpret_cast<uint8_t*>(at), step);
    spare_.leave();
    return at + step;
  }
  spare_.forget(end - at);
  return at;
}

bool MemoryTable::take_back(uint64_t start, uint64_t end, const Asker& asker) {
  std::vector<Mapped> mapped;
  if (!read_mappings(start, end, &mapped)) return false;
  bool done = true;
  for (const auto& one : mapped)
    if (arena_.is_home(one)) done = give_back(one, asker) && done;
  if (done) kept_out_.add(start, end);
  return done;
}

bool MemoryTable::give_back(const Mapped& one, const Asker& asker) {
  if (!base::is_single_threaded() && !watch_.is_alone_with())
    return give_back_held(one, asker) == one.end;
  const SignalsBlocked no_signals;
  const std::lock_guard lock(exchange_);
  void* const copy = arena_.copy_of(one, one.end - one.start);
  if (copy == nullptr) return false;
  watch_.uncover(one.start, one.end);
  if (!replace(one, copy)) return false;
  arena_.punch(one.start, one.end);
  return true;
}

// As convert_held(). What was given back stays so, also if the rest cannot be.
uint64_t MemoryTable::give_back_held(const Mapped& one, const Asker& asker) {
  if (!spare_.make()) return one.start;
  uint64_t at = one.start;
  while (at < one.end) {
    const uint64_t begun = at, chunk_end = std::min(one.end, at + kChunk);
    auto* const copy =
        static_cast<uint8_t*>(raw::mmap(nullptr, chunk_end - begun, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    if (copy == MAP_FAILED) return at;
    {
      const SignalsBlocked no_signals;
      Standstill still = holds_.begin(asker);
      if (still.reached() == ipc::Reached::kNot && exchange_.try_lock()) {
        const std::lock_guard lock(exchange_, std::adopt_lock);
        watch_.uncover(begun, chunk_end);
        while (at < chunk_end && still.reached() == ipc::Reached::kNot && spare_.size() != 0) {
          const uint64_t stop = std::min(chunk_end, at + spare_.size());
          at = turn_back(still, copy + (at - begun), at, stop, one.prot);
          if (at < stop) break;
        }
        if (at < chunk_end) (void)watch_.cover(at, chunk_end);
      }
      holds_.end(std::move(still), false);
    }
    if (at > begun) {
      const std::lock_guard lock(exchange_);
      arena_.punch(begun, at);
    }
    if (at < chunk_end) {
      raw::munmap(copy + (at - begun), chunk_end - at);
      return at;
    }
  }
  return at;
}

// Nothing here may wait for another thread. Returns how far it came; the rest is unchanged.
uint64_t MemoryTable::turn_back(Standstill& still, uint8_t* copy, uint64_t start, uint64_t end,
                                int prot) {
  const size_t size = end - start;
  // By the file, because the program may not be permitted to read the pages.
  const auto read_arena = [this](uint8_t* to, uint64_t from, size_t length) {
    return raw::call(SYS_pread64, arena_.file().get(), to, length, from) ==
           static_cast<long>(length);
  };
  if (!read_arena(spare_.copy(), start, size)) return start;
  copy_pages(copy, spare_.copy(), size);
  if (prot != (PROT_READ | PROT_WRITE) && raw::mprotect(copy, size, prot) != 0) return start;
  uint64_t at = start;
  while (at < end && still.begin_exchange(ipc::HoldPhase::kExchanging)) {
    const uint64_t step = std::min(end - at, Spare::kStep);
    auto* const memory = reinterpret_cast<uint8_t*>(at);
    const bool turned = raw::mremap(copy + (at - start), step, step, MREMAP_MAYMOVE | MREMAP_FIXED,
                                    memory) != MAP_FAILED;
    const bool in_time = still.end_exchange();
    if (!turned) break;
    // Late writes are in the old pages, which are still in the arena.
    uint8_t* const now = spare_.copy() + Spare::kMost;
    if (!in_time && (prot & PROT_WRITE) != 0 && read_arena(now, at, step))
      carry_over(spare_.copy() + (at - start), now, memory, step);
    at += step;
  }
  return at;
}

// The child has one thread. On failure it does not have the memory, so that it cannot change its
// parent's.
void MemoryTable::revert_in_child(const Mapped& one) {
  const SignalsBlocked no_signals;
  const uint64_t size = one.end - one.start;
  void* const copy = arena_.copy_of(one, size);
  if (copy == nullptr || !replace(one, copy)) raw::munmap(reinterpret_cast<void*>(one.start), size);
}

}  // namespace vrdma::client
