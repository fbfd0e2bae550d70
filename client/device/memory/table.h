// Memory of this process that is shared *in place*: theory of operation.
//
// Peers and the daemon access a page directly if it is in the process's memory arena, a memory file
// in which offset = virtual address. acquire() converts private anonymous memory: it copies the
// pages into the arena and maps the arena over them. All other memory (stack, files, shared or huge
// pages, read-only for a writer) stays unchanged, and the daemon *reaches* it.
//
// Memory in place behaves as private anonymous memory in every call that a program may make,
// because the watcher sees these calls (watch.h). So it stays in place after its registration: a
// deregistration changes no page, and the next registration finds the pages where they are. Where
// calls cannot be seen, or something else in the process may have pinned pages (pins.h), or the
// user says so (VRDMA_MEMORY=reached), nothing is converted. What is in place is not noted
// anywhere: the kernel's list of mappings is the only truth.
//
// No write of another thread may be lost. A process with one thread has no other writer (signals
// are blocked). Otherwise, if the vdevice may use userfaultfd(2), the range is write-protected, so
// that writers wait until the new mapping is in place. Otherwise the daemon holds the other threads
// (standstill.h), for a chunk of the range at a time, until the watcher sees what happens to the
// pages; small ranges that follow each other share a hold. If it cannot, the memory is reached. The
// converting thread writes only to its stack meanwhile, so a range in the mapping of that stack is
// never converted.
//
// Writers that are no threads of this process (process_vm_writev(2), /proc/PID/mem) are not held:
// what they write to a page between its copy and its exchange is lost. To compare each page once
// more would not find what they are still about to write.
//
// What the daemon reaches is not converted meanwhile: a reach thread would store into pages that
// are being exchanged.
//
// take_back() is the way back, for memory where a peer that has stopped may still store (ends.cc).
// It is never put in place again.
//
// fork(3): the child gets private copies before it runs on, and the parent waits for that. What the
// C library does in the child before would reach the parent, so pages that it writes to then are
// never converted (library_pages.h). One of them is not known: the locks of files that the program
// has opened by fopen(3). The other threads of the parent run while the child copies, so what they
// change meanwhile, also in a heap, may be in its copy.
//
// Without a descriptor free that could not be, so some are kept for it. A child that cannot make
// its copies ends by SIGABRT.
//
// A child that is made in another way (clone(2), _Fork()) does not have the pages at all: to touch
// them is SIGSEGV (MADV_DONTFORK), so it cannot change the parent's.
//
// One table per process, for all its sessions. All functions lock it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include "client/device/memory/arena.h"
#include "client/device/memory/library_pages.h"
#include "client/device/memory/ranges.h"
#include "client/device/memory/spare_descriptors.h"
#include "client/device/memory/standstill.h"
#include "client/device/memory/watch.h"
#include "core/base/fd.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

class MemoryTable {
 public:
  static MemoryTable& instance();

  // The arena of the first session, or -1; later sessions present it to the daemon.
  [[nodiscard]] int arena() const { return arena_.file().get(); }
  // `device` is an open /dev/userfaultfd, or invalid.
  void provide(base::Fd arena, base::Fd device);
  // The session with these words ends.
  void leave(const ipc::HoldWords& words);

  // Prepares [addr, addr + length) for a registration. 0 and the way, or EFAULT: a part is not
  // mapped, not readable, or not writable though `writable`. `why`: the reason if not kInPlace.
  [[nodiscard]] int acquire(uint64_t addr, uint64_t length, bool writable, const Asker& asker,
                            ipc::Way* way, ipc::Reached* why);

  // Another daemon serves the process, which may have been written to disk meanwhile. Then its
  // arena is another file, nothing is in it, and no thread watches: nothing is put in place again.
  // Takes no lock.
  void look_again();

  // [addr, addr + length) is registered and reached; that is over.
  void reach(uint64_t addr, uint64_t length);
  void leave(uint64_t addr, uint64_t length);

  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // Makes the pages [start, end) private, under lock(). Nobody but this program stores there
  // meanwhile. False: that failed for a part; to be tried again.
  [[nodiscard]] bool take_back(uint64_t start, uint64_t end, const Asker& asker);

  // fork(2) handlers.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  MemoryTable() = default;
  // Whether memory may be converted now; if not, why.
  [[nodiscard]] ipc::Reached obstacle();
  [[nodiscard]] bool has_room_for_mappings();
  [[nodiscard]] bool advise_arena(int advice);  // false: the mappings cannot be seen
  // exchange.cc. Those that return an address return that up to which they succeeded.
  bool convert(const Mapped& one, const Asker& asker, ipc::Reached* why);
  void widen(const Mapped& one, uint64_t* start, uint64_t* end) const;
  bool settle(uint64_t start, uint64_t end);
  bool fill_arena(const void* from, uint64_t start, uint64_t end);
  bool fill_arena_with(const Mapped& one, uint64_t start, uint64_t end);
  uint64_t convert_guarded(const Mapped& one, uint64_t start, uint64_t end, int userfaultfd,
                           bool alone);
  uint64_t convert_held(uint64_t start, uint64_t end, int prot, const Asker& asker,
                        ipc::Reached* why);
  uint64_t convert_chunk(uint64_t start, uint64_t end, int prot, const Asker& asker,
                         ipc::Reached* why);
  uint64_t turn(Standstill& still, uint64_t start, uint64_t end, int prot);
  uint64_t exchange_held(Standstill& still, uint64_t start, uint64_t end, int prot);
  bool give_back(const Mapped& one, const Asker& asker);
  uint64_t give_back_held(const Mapped& one, const Asker& asker);
  uint64_t turn_back(Standstill& still, uint8_t* copy, uint64_t start, uint64_t end, int prot);
  void revert_in_child(const Mapped& one);
  [[nodiscard]] int open_userfaultfd();

  std::mutex mutex_;
  // Its holder waits for no other thread: any thread may wait for the watcher, which locks it.
  std::mutex exchange_;
  Arena arena_;
  Watch watch_{arena_, exchange_};
  base::Fd device_;
  base::Fd userfaultfd_;            // protects pages while they are exchanged; not the watcher's
  bool converted_ = false;          // some memory may be in place
  bool too_many_mappings_ = false;  // when they were counted last
  uint32_t uncounted_ = 0;          // how many more may be asked for before they are counted again
  std::atomic<bool> restored_ = false;  // see look_again()
  Ranges kept_out_;                     // what is not converted
  LibraryPages library_;                // nor is what they have
  Spare spare_;
  Holds holds_;
  int fork_pipe_[2] = {-1, -1};
  bool fork_shows_arena_ = false;  // to the child, which must make it private
  SpareDescriptors for_fork_;      // the pipe, and the list of mappings
};

// While it exists, [addr, addr + length) is registered and reached.
class ReachedMemory {
 public:
  ReachedMemory() = default;
  ReachedMemory(uint64_t addr, uint64_t length) : addr_(addr), length_(length) {
    MemoryTable::instance().reach(addr_, length_);
  }
  ReachedMemory(ReachedMemory&& other) noexcept
      : addr_(other.addr_), length_(std::exchange(other.length_, 0)) {}
  ReachedMemory& operator=(ReachedMemory&& other) noexcept {
    std::swap(addr_, other.addr_);
    std::swap(length_, other.length_);
    return *this;
  }
  ~ReachedMemory() {
    if (length_ != 0) MemoryTable::instance().leave(addr_, length_);
  }

 private:
  uint64_t addr_ = 0, length_ = 0;
};

}  // namespace vrdma::client
