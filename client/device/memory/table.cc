#include "client/device/memory/table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "client/device/memory/maps.h"

namespace vrdma::client {

namespace {

constexpr uint64_t kPage = 4096;
// Half of vm.max_map_count's default; beyond it memory is reached instead.
constexpr size_t kMaxIntervals = 32000;

uint64_t page_down(uint64_t address) { return address / kPage * kPage; }
uint64_t page_up(uint64_t address) { return (address + kPage - 1) / kPage * kPage; }

}  // namespace

MemoryTable& MemoryTable::instance() {
  static MemoryTable* table = [] {
    ::pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                     [] { instance().after_fork_in_child(); });
    return new MemoryTable;  // never destroyed, because threads may register until the process ends
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

// Makes intervals cover [start, end); new intervals have no users.
void MemoryTable::cover(uint64_t start, uint64_t end) {
  split(start);
  split(end);
  for (uint64_t at = start; at < end;) {
    const auto it = intervals_.lower_bound(at);
    if (it == intervals_.end() || it->first != at) {
      const uint64_t stop = it == intervals_.end() ? end : std::min(end, it->first);
      intervals_.emplace(at, Interval{stop, 0});
      at = stop;
    } else {
      at = it->second.end;
    }
  }
}

// Called when no page of [start, end), which is covered, is in the arena. Intervals with users
// remain: their registrations release them.
void MemoryTable::uncover(uint64_t start, uint64_t end) {
  auto it = std::prev(intervals_.upper_bound(start));
  if (it->first < start) {
    if (it->second.users == 0) it->second.end = start;
    ++it;
  }
  while (it != intervals_.end() && it->first < end)
    it = it->second.users == 0 ? intervals_.erase(it) : std::next(it);
}

int MemoryTable::acquire(uint64_t addr, uint64_t length, bool writable, const Asker& asker,
                         ipc::Way* way, ipc::Reached* why) {
  *way = ipc::Way::kReached;
  *why = ipc::Reached::kOther;
  if (length == 0) return 0;
  const uint64_t start = page_down(addr), end = page_up(addr + length);
  if (end <= start) return EFAULT;  // the last page of the address space
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
  if (!convertible) {
    if (arena_.valid()) *why = ipc::Reached::kMemory;
    return 0;
  }
  for (const auto& one : mapped) cover(one.start, one.end);  // fails here, not later
  cover(start, end);
  for (auto one = mapped.begin(); one != mapped.end(); ++one) {
    if (one->shared) continue;
    const uint64_t reached = convert(one->start, one->end, one->prot, asker, why);
    if (reached == one->end) continue;
    // The converted part stays until it is released; the rest is unchanged private memory.
    uncover(reached, one->end);
    for (++one; one != mapped.end(); ++one)
      if (!one->shared) uncover(one->start, one->end);
    return 0;
  }
  for (auto it = intervals_.find(start); it != intervals_.end() && it->first < end; ++it)
    ++it->second.users;
  *why = ipc::Reached::kNot;
  *way = ipc::Way::kInPlace;
  return 0;
}

void MemoryTable::release(uint64_t addr, uint64_t length, const Asker& asker) {
  if (length == 0) return;
  const uint64_t start = page_down(addr), end = page_up(addr + length);
  const std::lock_guard lock(mutex_);
  split(start);
  split(end);
  auto it = intervals_.lower_bound(start);
  uint64_t run_start = 0, run_end = 0;  // neighbours are reverted together
  while (it != intervals_.end() && it->first < end) {
    if (--it->second.users > 0) {
      ++it;
      continue;
    }
    const uint64_t from = it->first, to = it->second.end;
    if (run_end != from) {
      if (run_end != 0) revert_mapped(run_start, run_end, asker);
      run_start = from;
    }
    run_end = to;
    it = intervals_.lower_bound(to);
  }
  if (run_end != 0) revert_mapped(run_start, run_end, asker);
}

// The range has no users. Reverts only pages that are still in the arena, because the program may
// have unmapped, replaced or moved some. Pages that cannot be reverted now, because other threads
// run and nothing can hold them, remain intervals; a forked child still gets a private copy.
void MemoryTable::revert_mapped(uint64_t start, uint64_t end, const Asker& asker) {
  std::vector<Mapped> mapped;
  if (!read_mappings(start, end, &mapped)) return;
  intervals_.erase(intervals_.lower_bound(start), intervals_.lower_bound(end));
  uint64_t at_home = 0;
  for (const auto& one : mapped)
    if (is_home(one)) at_home += one.end - one.start;
  if (at_home < end - start) revert_moved(start, end, asker);
  uint64_t done = start;
  for (const auto& one : mapped) {
    if (!is_home(one)) continue;
    punch(done, one.start);
    const uint64_t reached = revert(one.start, one.end, one.offset, one.prot, &asker);
    if (reached > one.start) keep(one.start, reached);
    cover(reached, one.end);
    done = one.end;
  }
  punch(done, end);
}

// mremap(2), and therefore realloc(3), moves pages of the arena to another address.
void MemoryTable::revert_moved(uint64_t start, uint64_t end, const Asker& asker) {
  std::vector<Mapped> mapped;
  if (!read_mappings(0, UINT64_MAX, &mapped)) return;
  for (const auto& one : mapped) {
    if (!one.shared || one.inode != arena_inode_ || one.offset == one.start) continue;
    const uint64_t last = one.offset + (one.end - one.start);
    if (last <= start || one.offset >= end) continue;
    // All of it that no other registration holds, including what the mapping has grown by.
    for (uint64_t at = one.offset; at < last;) {
      const auto next = intervals_.upper_bound(at);
      if (next != intervals_.begin() && std::prev(next)->second.end > at) {
        at = std::prev(next)->second.end;
        continue;
      }
      const uint64_t stop = next == intervals_.end() ? last : std::min(last, next->first);
      (void)revert(one.start + (at - one.offset), one.start + (stop - one.offset), at, one.prot,
                   &asker);
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

// Until all pages are private to the child, writes only to the stack: allocated memory might be in
// a page that the parent considers free.
void MemoryTable::after_fork_in_child() {
  const SeeMapped revert_one = [](const Mapped& one, void* with) {
    auto* const table = static_cast<MemoryTable*>(with);
    if (table->is_home(one)) (void)table->revert(one.start, one.end, one.offset, one.prot, nullptr);
  };
  for (const auto& [start, interval] : intervals_)
    (void)visit_mappings(start, interval.end, revert_one, this);
  intervals_.clear();
  kept_ = {};
  arena_.reset();  // the parent's; the child's sessions bring another one
  arena_inode_ = 0;
  userfaultfd_.reset();
  device_.reset();
  spare_.leave();
  if (fork_pipe_[1] >= 0) {
    ::close(fork_pipe_[1]);
    ::close(fork_pipe_[0]);
  }
  mutex_.unlock();
}

}  // namespace vrdma::client
