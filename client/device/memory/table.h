// Memory of this process that is shared *in place*: theory of operation.
//
// Peers and the daemon access a page directly if it is in the process's memory arena, a memory file
// in which offset = virtual address. acquire() converts private anonymous memory: it copies the
// pages into the arena and maps the arena over them. The last release() reverts them, so that
// unregistered memory behaves as usual (fork, MADV_DONTNEED, munmap). The arena keeps their pages
// for a while, for the next registration of the same range (kept_pages.h). All other memory (stack,
// files, shared or huge pages, read-only for a writer) stays unchanged, and the daemon *reaches*
// it.
//
// No write of another thread may be lost. A process with one thread has no other writer (signals
// are blocked). Otherwise, if the vdevice may use userfaultfd(2), the range is write-protected, so
// that writers wait until the new mapping is in place. Otherwise the daemon holds the other threads
// (standstill.h), for a chunk of the range at a time. If it cannot, the memory is reached. The
// converting thread writes only to its stack meanwhile, so a range in the mapping of that stack is
// never converted.
//
// fork: the child gets private copies before it runs on, and the parent waits for that.
//
// One table per process, for all its sessions. All functions lock it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "client/device/memory/kept_pages.h"
#include "client/device/memory/standstill.h"
#include "core/base/fd.h"
#include "core/ipc/layout.h"

namespace vrdma::client {

struct Mapped;
class Session;

// The session whose daemon holds this process's other threads, and its words.
struct Asker {
  Session& session;
  ipc::HoldWords& words;
};

class MemoryTable {
 public:
  static MemoryTable& instance();

  // The arena of the first session, or -1; later sessions present it to the daemon.
  [[nodiscard]] int arena() const { return arena_.get(); }
  // `device` is an open /dev/userfaultfd, or invalid.
  void provide(base::Fd arena, base::Fd device);

  // Prepares [addr, addr + length) for a registration. 0 and the way, or EFAULT: a part is not
  // mapped, not readable, or not writable though `writable`. `why`: the reason if not kInPlace.
  [[nodiscard]] int acquire(uint64_t addr, uint64_t length, bool writable, const Asker& asker,
                            ipc::Way* way, ipc::Reached* why);
  // Undoes one acquire() whose way was kInPlace.
  void release(uint64_t addr, uint64_t length, const Asker& asker);

  // fork(2) handlers.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  struct Interval {
    uint64_t end = 0;
    uint32_t users = 0;
  };
  using Intervals = std::map<uint64_t, Interval>;

  MemoryTable() = default;
  // True if it maps the arena at offset = address.
  [[nodiscard]] bool is_home(const Mapped& one) const;
  void split(uint64_t at);
  void cover(uint64_t start, uint64_t end);
  void uncover(uint64_t start, uint64_t end);
  void revert_mapped(uint64_t start, uint64_t end, const Asker& asker);
  void revert_moved(uint64_t start, uint64_t end, const Asker& asker);
  // exchange.cc. Both return the address up to which they succeeded.
  uint64_t convert(uint64_t start, uint64_t end, int prot, const Asker& asker, ipc::Reached* why);
  uint64_t revert(uint64_t start, uint64_t end, uint64_t offset, int prot, const Asker* asker);
  bool fill_arena(const void* from, uint64_t start, uint64_t end);
  bool convert_guarded(uint64_t start, uint64_t end, int prot, int userfaultfd, bool alone);
  uint64_t convert_held(uint64_t start, uint64_t end, int prot, const Asker& asker,
                        ipc::Reached* why);
  uint64_t turn(Standstill& still, uint64_t start, uint64_t end, int prot);
  bool revert_guarded(uint64_t start, uint64_t end, int prot, bool alone);
  uint64_t revert_held(uint64_t start, uint64_t end, uint64_t offset, int prot, const Asker& asker);
  uint64_t turn_back(Standstill& still, uint8_t* copy, uint64_t start, uint64_t end,
                     uint64_t offset, int prot);
  void keep(uint64_t start, uint64_t end);
  void punch(uint64_t start, uint64_t end);
  void punch_surplus();
  [[nodiscard]] int open_userfaultfd();

  std::mutex mutex_;
  base::Fd arena_;
  uint64_t arena_inode_ = 0;
  base::Fd device_;
  base::Fd userfaultfd_;
  Intervals intervals_;  // page ranges in place, disjoint; without users: could not be reverted
  KeptPages kept_;       // pages of the arena that are not mapped
  Spare spare_;
  int fork_pipe_[2] = {-1, -1};
};

}  // namespace vrdma::client
