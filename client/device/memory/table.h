// Which memory of this process is shared *in place*: theory of operation.
//
// Peers and the daemon can use a page directly if it is a page of the process's memory arena, a
// memory file in which offset = virtual address. acquire() turns private anonymous memory into
// that: it copies the pages into the arena and maps them over themselves. release() by the last
// holder turns them back, so that memory which is not registered behaves as ever (fork,
// MADV_DONTNEED, munmap); the arena keeps its pages of them for a while, for the next registration
// of the same (kept_pages.h). All other memory (stack, files, shared or huge pages, read-only for a
// writer) stays as it is and is *reached* by the daemon.
//
// Nothing that another thread writes meanwhile may be lost. In a process with one thread there is
// nobody (signals are held off). Else, if the vdevice may have userfaultfd(2), the range is
// write-protected with it, so that a writer waits until the new mapping stands. Else the daemon
// holds the other threads (standstill.h), a chunk of the range at a time; where it cannot, memory
// is left where it is and reached. The converting thread writes to nothing but its stack meanwhile,
// so a range in the mapping that holds its stack is never converted.
//
// fork: the child gets private copies before it runs on, and the parent waits for that.
//
// One table a process, for all its sessions. All functions lock it.
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

// Who asks the daemon to hold this process's other threads: a session, and its words.
struct Asker {
  Session& session;
  ipc::HoldWords& words;
};

class MemoryTable {
 public:
  static MemoryTable& instance();

  // The arena that the first session brought, or -1; later sessions present it.
  [[nodiscard]] int arena() const { return arena_.get(); }
  // `device` is /dev/userfaultfd opened, or invalid.
  void provide(base::Fd arena, base::Fd device);

  // Prepares [addr, addr + length) for a registration. 0 and the way, or EFAULT: part of it is not
  // mapped, not readable, or not writable though `writable`.
  // `why`: why not kInPlace.
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
  // It is of the arena, and where it belongs.
  [[nodiscard]] bool is_home(const Mapped& one) const;
  void split(uint64_t at);
  void cover(uint64_t start, uint64_t end);
  void uncover(uint64_t start, uint64_t end);
  void revert_mapped(uint64_t start, uint64_t end, const Asker& asker);
  void revert_moved(uint64_t start, uint64_t end, const Asker& asker);
  // memory_exchange.cc. Both tell how far they came.
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
  Intervals intervals_;  // page ranges in place, disjoint; without users: could not be turned back
  KeptPages kept_;       // pages of the arena that are in no place
  Spare spare_;
  int fork_pipe_[2] = {-1, -1};
};

}  // namespace vrdma::client
