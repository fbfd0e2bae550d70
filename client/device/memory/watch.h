// Sees every call that changes the mappings of memory in place, and makes its effect that of
// private memory. Theory of operation:
//
// Memory in place is a shared mapping of the arena, where offset = virtual address. Some system
// calls differ on such a mapping: madvise(MADV_DONTNEED) would bring the old bytes back, mremap(2)
// would let a range grow into its neighbour's pages, and what is unmapped would keep its bytes for
// whoever grows there later. userfaultfd(2) reports these calls, whoever makes them (also the C
// library for realloc(3), and assembly code): the caller sleeps until its event is read. No page is
// protected, so no access ever waits, and the descriptor needs no privilege (UFFD_USER_MODE_ONLY).
//
// One thread, the watcher, reads the events. It corrects the arena *before* it reads an event: the
// caller runs on as soon as that is read, and a later correction would destroy its next stores.
// What a caller wants is known without the event: /proc/self/task/TID/wchan says that the thread
// sleeps there, and .../syscall gives the call and its arguments. Both are exact, because a thread
// enters the queue of events and leaves the running state under one lock of the kernel
// (fs/userfaultfd.c: userfaultfd_event_wait_completion()). Events are read in the order in which
// their callers went to sleep. So the watcher counts the callers, then corrects for all that sleep,
// and then reads as many events as it counted: each of them belongs to a caller that it has seen.
// To read an event wakes the other callers too, for a moment. So as long as events are left, a
// thread that runs is believed only after it has had the processor for longer than such a moment.
//
// The corrections:
//   MADV_DONTNEED, MADV_DONTNEED_LOCKED: the pages are freed.
//   mremap: what was moved becomes private memory at its new address; the rest of it, if it has
//     grown, is zero. The range that it left is freed.
//   munmap, mmap(MAP_FIXED), brk and all others: pages of the arena that are mapped nowhere are
//   freed.
// A range that grows where it stands, which nothing reports, so grows into free pages.
//
// The watcher neither allocates nor takes a lock but `exchange`: its callers may hold any other.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "client/device/memory/arena.h"
#include "core/base/fd.h"

namespace vrdma::client {

// One per process, never destroyed. All functions but is_trusted() are called under the table's
// mutex.
class Watch {
 public:
  Watch(const Arena& arena, std::mutex& exchange) : arena_(arena), exchange_(exchange) {}

  // Starts the watcher, once, when there is an arena. `device`: /dev/userfaultfd for where the
  // system call is forbidden, or invalid. False: calls cannot be seen; memory cannot be in place.
  [[nodiscard]] bool start(const base::Fd& device);
  // False once a call was not recognized.
  [[nodiscard]] bool is_trusted() const { return !blind_.load(std::memory_order_relaxed); }
  // Watches [start, end), which maps the arena, from now on. False: no memory.
  [[nodiscard]] bool cover(uint64_t start, uint64_t end);
  // The opposite, under `exchange`: so that a call of the library's own there waits for nobody.
  void uncover(uint64_t start, uint64_t end) const;
  // True if the calling thread and the watcher are the only threads.
  [[nodiscard]] bool is_alone_with() const;
  // Of the program's table of descriptors; -1: none.
  [[nodiscard]] int descriptor() const { return events_.get(); }
  // In a forked child, which has no watcher.
  void forget();

 private:
  struct Caller {
    long number = -1;  // of the system call
    uint64_t args[6] = {};
  };
  void run();
  void serve(int events);
  template <class Found>
  [[nodiscard]] bool each_caller(Found found) const;
  [[nodiscard]] bool is_caller(int folder, const char* thread, Caller* caller) const;
  void correct(const Caller& caller);
  void correct_remap(const Caller& caller);
  void correct_advice(uint64_t start, uint64_t end, int advice);
  void correct_advice_list(const Caller& caller);
  [[nodiscard]] bool make_private(const Mapped& moved, uint64_t genuine);
  // Frees the arena's pages of [start, end) that are not mapped there; `mapped_too`: all.
  void clear(uint64_t start, uint64_t end, bool mapped_too);
  void clear_data(uint64_t start, uint64_t end, bool mapped_too);
  [[nodiscard]] bool test();

  const Arena& arena_;
  std::mutex& exchange_;  // held while pages of the arena or their mappings are exchanged
  base::Fd events_;
  bool has_clocks_ = false;  // of threads by their numbers in /proc
  // Of the watcher: its number in /proc, and its own descriptor, which has the number of events_.
  // That of the arena has its number too.
  int thread_ = 0;
  int events_of_thread_ = -1;
  bool settle_ = false;  // callers may be awake that were woken by an event of another
  bool tried_ = false;
  std::atomic<bool> blind_ = false;
};

}  // namespace vrdma::client
