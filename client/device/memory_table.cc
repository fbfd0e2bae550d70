#include "client/device/memory_table.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "client/device/memory_maps.h"

namespace vrdma::client {

// The system calls themselves. Programs hook the functions of libc to learn when registered memory
// goes away (UCX does); that it stays where it is while its pages are exchanged is not their
// affair.
namespace raw {

template <class... Args>
long call(long number, Args... args) {
  return ::syscall(number, args...);
}
void* mmap(void* at, size_t size, int prot, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(call(SYS_mmap, at, size, prot, flags, fd, offset));
}
void* mremap(void* from, size_t old_size, size_t new_size, int flags, void* to) {
  return reinterpret_cast<void*>(call(SYS_mremap, from, old_size, new_size, flags, to));
}
int munmap(void* at, size_t size) { return static_cast<int>(call(SYS_munmap, at, size)); }
int madvise(void* at, size_t size, int advice) {
  return static_cast<int>(call(SYS_madvise, at, size, advice));
}
int mprotect(void* at, size_t size, int prot) {
  return static_cast<int>(call(SYS_mprotect, at, size, prot));
}

}  // namespace raw

namespace {

constexpr uint64_t kPage = 4096;
// Half of vm.max_map_count's default: beyond it memory is reached instead of turned.
constexpr size_t kMaxIntervals = 32000;

uint64_t page_down(uint64_t address) { return address / kPage * kPage; }
uint64_t page_up(uint64_t address) { return (address + kPage - 1) / kPage * kPage; }

// Whole pages have bytes that the program itself must not touch, such as the red zones of a
// sanitizer that watches memcpy. This is not watched.
void copy_pages(void* to, const void* from, size_t size) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

// Holds off signals while memory changes under the program.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// Makes writers of a range wait; they go on when it is destroyed. With one thread there are none.
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
    // Where the range was mapped over, its registration has gone with the old mapping; only the
    // sleepers are left. Where it was not, the protection goes too.
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

MemoryTable& MemoryTable::instance() {
  static MemoryTable* table = [] {
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                     [] { instance().after_fork_in_child(); });
    return new MemoryTable;  // never destroyed: threads may register until the very end
  }();
  return *table;
}

void MemoryTable::provide(base::Fd arena, base::Fd device) {
  const std::lock_guard lock(mutex_);
  if (arena_.valid()) return;
  struct stat status {};
  ::fstat(arena.get(), &status);
  arena_inode_ = status.st_ino;
  arena_ = std::move(arena);
  device_ = std::move(device);
}

int MemoryTable::open_userfaultfd() {
  if (userfaultfd_.valid() || !device_.valid()) return userfaultfd_.get();
  base::Fd fd(::ioctl(device_.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC));
  if (!fd.valid()) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) return -1;
  userfaultfd_ = std::move(fd);
  return userfaultfd_.get();
}

bool MemoryTable::is_home(const Mapped& one) const {
  return one.shared && one.inode == arena_inode_ && one.offset == one.start;
}

void MemoryTable::split(uint64_t at) {
  auto it = intervals_.upper_bound(at);
  if (it == intervals_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  const Interval behind{it->second.end, it->second.users};
  it->second.end = at;
  intervals_.emplace(at, behind);
}

int MemoryTable::acquire(uint64_t addr, uint64_t length, bool writable, ipc::Way* way) {
  *way = ipc::Way::kReached;
  if (length == 0) return 0;
  const uint64_t start = page_down(addr), end = page_up(addr + length);
  const std::lock_guard lock(mutex_);
  std::vector<Mapped> mapped;
  if (!read_mappings(start, end, &mapped)) return 0;
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  uint64_t covered = start;
  bool convertible = arena_.valid() && intervals_.size() < kMaxIntervals;
  for (const auto& one : mapped) {
    if (one.start != covered || (one.prot & PROT_READ) == 0) return EFAULT;
    if (writable && (one.prot & PROT_WRITE) == 0) return EFAULT;
    covered = one.end;
    convertible = convertible && (is_home(one) || (one.anonymous && !one.holds(here)));
  }
  if (covered < end) return EFAULT;
  if (!convertible) return 0;
  for (const auto& one : mapped)
    if (!one.shared && !convert(one.start, one.end, one.prot)) return 0;

  split(start);
  split(end);
  for (uint64_t at = start; at < end;) {
    auto it = intervals_.lower_bound(at);
    if (it != intervals_.end() && it->first == at) {
      ++it->second.users;
      at = it->second.end;
    } else {
      const uint64_t stop = it == intervals_.end() ? end : std::min(end, it->first);
      intervals_.emplace(at, Interval{stop, 1});
      at = stop;
    }
  }
  *way = ipc::Way::kInPlace;
  return 0;
}

// Copies [start, end) into the arena. Signals are held off.
bool MemoryTable::fill_arena(uint64_t start, uint64_t end) {
  // write(2) makes whole pages without zeroing them first, and takes no fault for each.
  uint64_t at = start;
  while (at < end) {
    const long count = raw::call(SYS_pwrite64, arena_.get(), at, end - at, at);
    if (count <= 0) break;
    at += static_cast<uint64_t>(count);
  }
  if (at == end) return true;
  if (errno != EFBIG) return false;
  // RLIMIT_FSIZE, which is no limit of memory; a mapping has none. The kernel has sent a signal to
  // this thread, and the program is to see nothing of it.
  sigset_t limit;
  ::sigemptyset(&limit);
  ::sigaddset(&limit, SIGXFSZ);
  const timespec now{};
  ::sigtimedwait(&limit, nullptr, &now);
  const size_t size = end - start;
  void* shared = raw::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                           arena_.get(), static_cast<off_t>(start));
  if (shared == MAP_FAILED) return false;
  copy_pages(shared, reinterpret_cast<const void*>(start), size);
  raw::munmap(shared, size);
  return true;
}

bool MemoryTable::convert(uint64_t start, uint64_t end, int prot) {
  const bool alone = __libc_single_threaded != 0;
  const int userfaultfd = alone ? -1 : open_userfaultfd();
  if (!alone && userfaultfd < 0) return false;
  auto* memory = reinterpret_cast<void*>(start);
  const size_t size = end - start;
  kept_.take(start, end);
  punch_surplus();
  // Pages that are not there could be made by a writer behind the protection's back.
  const bool writable = (prot & PROT_WRITE) != 0;
  if (!alone &&
      raw::madvise(memory, size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0)
    return false;
  {
    const SignalsBlocked no_signals;
    const WritersHeld writers(userfaultfd, start, end, !alone);
    if (!writers.ok()) return false;
    if (!fill_arena(start, end) ||
        raw::mmap(memory, size, prot, MAP_SHARED | MAP_FIXED, arena_.get(),
                  static_cast<off_t>(start)) == MAP_FAILED) {
      punch(start, end);
      return false;
    }
  }
  // Many pages a fault, where the program's first write would take one for each. It can do without.
  (void)raw::madvise(memory, size, MADV_POPULATE_READ);
  return true;
}

void MemoryTable::release(uint64_t addr, uint64_t length) {
  if (length == 0) return;
  const uint64_t start = page_down(addr), end = page_up(addr + length);
  const std::lock_guard lock(mutex_);
  split(start);
  split(end);
  const bool alone = __libc_single_threaded != 0;
  // Turned while there was one thread, now there are more and nothing to hold them: it stays.
  const bool stays = !alone && open_userfaultfd() < 0;
  auto it = intervals_.lower_bound(start);
  uint64_t run_start = 0, run_end = 0;  // neighbours are turned back together
  while (it != intervals_.end() && it->first < end) {
    if (--it->second.users > 0 || stays) {
      ++it;
      continue;
    }
    if (run_end != it->first) {
      if (run_end != 0) revert_mapped(run_start, run_end, alone);
      run_start = it->first;
    }
    run_end = it->second.end;
    it = intervals_.erase(it);
  }
  if (run_end != 0) revert_mapped(run_start, run_end, alone);
}

// The program may have unmapped, replaced or moved part of it meanwhile: only what is still ours.
void MemoryTable::revert_mapped(uint64_t start, uint64_t end, bool alone) {
  std::vector<Mapped> mapped;
  if (!read_mappings(start, end, &mapped)) return;
  uint64_t at_home = 0;
  for (const auto& one : mapped)
    if (is_home(one)) at_home += one.end - one.start;
  if (at_home < end - start) revert_moved(start, end, alone);
  uint64_t done = start;
  for (const auto& one : mapped) {
    if (!is_home(one)) continue;
    punch(done, one.start);
    if (revert(one.start, one.end, one.prot, alone)) keep(one.start, one.end);
    done = one.end;
  }
  punch(done, end);
}

// mremap(2), and so realloc(3), takes pages of the arena to another address.
void MemoryTable::revert_moved(uint64_t start, uint64_t end, bool alone) {
  std::vector<Mapped> mapped;
  if (!read_mappings(0, UINT64_MAX, &mapped)) return;
  for (const auto& one : mapped) {
    if (!one.shared || one.inode != arena_inode_ || one.offset == one.start) continue;
    const uint64_t last = one.offset + (one.end - one.start);
    if (last <= start || one.offset >= end) continue;
    // All of it that no other registration holds: what it has grown by, too.
    for (uint64_t at = one.offset; at < last;) {
      const auto next = intervals_.upper_bound(at);
      if (next != intervals_.begin() && std::prev(next)->second.end > at) {
        at = std::prev(next)->second.end;
        continue;
      }
      const uint64_t stop = next == intervals_.end() ? last : std::min(last, next->first);
      (void)revert(one.start + (at - one.offset), one.start + (stop - one.offset), one.prot, alone);
      at = stop;
    }
  }
}

void MemoryTable::keep(uint64_t start, uint64_t end) {
  if (!kept_.keep(start, end)) punch(start, end);
  punch_surplus();
}

void MemoryTable::punch_surplus() {
  while (const auto range = kept_.surplus()) punch(range->start, range->end);
}

void MemoryTable::punch(uint64_t start, uint64_t end) {
  if (start < end)
    ::fallocate(arena_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
                static_cast<off_t>(end - start));
}

// False: it stays in place, which is only unusual.
bool MemoryTable::revert(uint64_t start, uint64_t end, int prot, bool alone) {
  const size_t size = end - start;
  auto* memory = reinterpret_cast<void*>(start);
  void* copy = raw::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (copy == MAP_FAILED) return false;
  {
    const SignalsBlocked no_signals;
    const WritersHeld writers(userfaultfd_.get(), start, end, !alone);
    if (writers.ok() && ((prot & PROT_READ) != 0 || raw::mprotect(memory, size, PROT_READ) == 0)) {
      copy_pages(copy, memory, size);
      if ((prot == (PROT_READ | PROT_WRITE) || raw::mprotect(copy, size, prot) == 0) &&
          raw::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, memory) != MAP_FAILED)
        return true;
    }
  }
  raw::munmap(copy, size);
  return false;
}

void MemoryTable::before_fork() {
  mutex_.lock();
  fork_pipe_[0] = fork_pipe_[1] = -1;
  if (!intervals_.empty() && ::pipe2(fork_pipe_, O_CLOEXEC) != 0)
    fork_pipe_[0] = fork_pipe_[1] = -1;
}

void MemoryTable::after_fork_in_parent() {
  if (fork_pipe_[1] >= 0) {
    ::close(fork_pipe_[1]);
    char nothing;
    while (::read(fork_pipe_[0], &nothing, 1) < 0 && errno == EINTR) {
    }  // until the child has closed its end
    ::close(fork_pipe_[0]);
  }
  mutex_.unlock();
}

// Until all of it is the child's own, nothing is written but the stack: memory that is allocated
// here may lie in a page that the parent has free.
void MemoryTable::after_fork_in_child() {
  const SeeMapped revert_one = [](const Mapped& one, void* with) {
    auto* const table = static_cast<MemoryTable*>(with);
    if (table->is_home(one)) (void)table->revert(one.start, one.end, one.prot, true);
  };
  for (const auto& [start, interval] : intervals_)
    (void)visit_mappings(start, interval.end, revert_one, this);
  intervals_.clear();
  kept_ = {};
  arena_.reset();  // the parent's; the child's sessions bring their own
  arena_inode_ = 0;
  userfaultfd_.reset();
  device_.reset();
  if (fork_pipe_[1] >= 0) {
    ::close(fork_pipe_[1]);
    ::close(fork_pipe_[0]);
  }
  mutex_.unlock();
}

}  // namespace vrdma::client
