// Reaching memory that is not in place, by the owner's page tables (/proc/PID/mem).
//
// A page may fault for as long as its owner likes (userfaultfd, FUSE, a stopped network mount), so
// this is the work of threads of the process's vdevice (core/rdma/reach_threads.h): one at a time
// for each process, so that only its own work waits for it.
// Jobs run in the order submitted; `done` runs on the event loop's thread. Never
// process_vm_writev: a pid survives execve(2), the descriptor does not.
//
// To wake a thread takes longer than to copy many pages. So a message that both its source and its
// target must be reached for is relayed: one thread reads a part of it and writes it, part by part,
// and the loop hears of the end only. Each access is still one of those of its process, in their
// order, and counts among the threads of that process's vdevice. Whoever ends something on either
// side interrupts the relay at once: no part is begun any more, and the loop looks at the keys
// again before it goes on with the rest. A part that waits in the target's line has begun.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "core/ipc/layout.h"
#include "core/rdma/peer.h"
#include "core/rdma/reach_threads.h"

namespace vrdma::rdma {

class Reach {
 public:
  // A process's memory. Whoever changes a word of it in place of the processor holds `changes`,
  // which all that reach this process share: a process may have opened devices more than once, and
  // let others have its memory. The files are closed, under `guard`, when the reach that it was
  // given to is destroyed; a thread that still works for that reach has a descriptor of its own.
  struct Memory {
    MemoryFiles files;
    std::shared_ptr<std::mutex> changes;
    std::shared_ptr<std::mutex> guard = std::make_shared<std::mutex>();
    uint64_t serial = 0;  // of files.memory; the reach sets it
  };
  struct Part {
    uint64_t addr = 0;
    uint64_t length = 0;
    uint64_t offset = 0;  // in the buffer
    // Of another process that let this one have its memory, or nullptr: of the reach's own.
    std::shared_ptr<const Memory> memory = nullptr;
  };
  class Relaying;  // a relay that goes on
  // Called on the reach's thread just before the last part is stored, with kBegun and what stands
  // there, in the first bytes of `stood`; and just after, with kDone and the same.
  using Marker = std::function<void(ipc::Mark how, uint64_t stood)>;
  struct Job {
    bool write = false;  // buffer -> memory; else memory -> buffer
    std::vector<Part> parts;
    std::shared_ptr<std::vector<uint8_t>> buffer;
    // Nothing is moved; `ok` tells whether the mappings permit it (core/rdma/mappings.h).
    bool only_asked = false;
    // With it, the only part is a word of eight bytes: what stands there goes to the buffer, and
    // what this makes of it is written back; if it is the same, `mark` says kDone only. No other
    // job's change falls in between. Runs on the reach's thread.
    std::function<uint64_t(uint64_t old)> change;
    // The last part, of at most eight bytes, is what others notice.
    Marker mark;
    std::function<void(bool ok)> done;  // ok: every byte was there and allowed
    // Who pays for it; nullptr: whose memory it is.
    std::shared_ptr<base::CpuMeter> payer = nullptr;
    // Of which this is a part: set by the reach.
    std::shared_ptr<Relaying> relaying = nullptr;
    bool revoked = false;  // its memory was taken away: set by the reach
  };
  enum class RelayEnd : uint8_t { kDone, kInterrupted, kNotRead, kNotWritten };
  struct Relay {
    std::vector<Part> from, to;  // `offset`: in the message; in its order
    uint64_t length = 0;         // of the message, more than 0
    // The last part of `to` is stored by itself, with `mark` around it; see Job::mark. At most as
    // long as the buffer.
    Marker mark = nullptr;
    std::shared_ptr<std::vector<uint8_t>> buffer = nullptr;  // not empty
    // Dropped, on the loop, when nothing is written any more.
    std::shared_ptr<void> arrival = nullptr;
    // On the loop: so many bytes were moved, from the beginning, and why no more.
    std::function<void(uint64_t moved, RelayEnd how)> done = nullptr;
    std::shared_ptr<base::CpuMeter> payer = nullptr;  // as Job::payer
  };

  // How long release() waits for jobs before it takes the memory away from them.
  static constexpr auto kPatience = std::chrono::milliseconds(200);

  Reach(base::EventLoop& loop, Memory memory, std::shared_ptr<ReachThreads> threads);
  ~Reach();  // does not wait for a job that hangs; jobs not begun are dropped with their `done`
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  // For the parts of other processes' jobs; outlives this.
  [[nodiscard]] std::shared_ptr<const Memory> memory() const { return {shared_, &shared_->memory}; }

  // Uses `files`, of the same process, from now on.
  void replace(MemoryFiles files);
  [[nodiscard]] bool may_write() const;

  void submit(Job job);
  // From memory of this process to memory of `to`'s, which has the same loop. nullptr: not while
  // either is paused. Else `relay.done` is called, unless both have gone.
  [[nodiscard]] std::shared_ptr<Relaying> relay(Reach& to, Relay relay);
  // No part of it is begun any more; loop's thread.
  static void interrupt(Relaying& relaying);
  // The same of all that have to do with this process, because what its keys name has changed.
  void interrupt_relays();
  // Calls `done` when all jobs submitted so far have ended; at once if there is none.
  void barrier(std::function<void()> done);
  // Calls `done`, on the loop or at once, when no job submitted so far is going to touch the memory
  // of `owner`, which this process imported. Jobs that last longer than kPatience, because they
  // hang elsewhere, fail when they come to that memory; those behind them that name it, in their
  // turn. So do those of a reach that is destroyed: `done` is called then too, unless `owner` has
  // gone.
  void release(const Reach& owner, std::function<void()> done);
  // Calls `ready` when all jobs submitted so far have ended. Later ones wait until the ticket is
  // destroyed; loop's thread.
  [[nodiscard]] std::shared_ptr<void> pause(std::function<void()> ready);

 private:
  struct Shared {
    std::weak_ptr<ReachThreads> threads;
    std::weak_ptr<int> alive;                                          // as long as the reach
    uint64_t waker_serial = ReachThreads::Descriptors::next_serial();  // of the loop's
    // Only while `stopped` is false is the loop sure to be there.
    std::mutex mutex;
    base::EventLoop* loop = nullptr;
    bool stopped = false;
    bool scheduled = false;  // it has a turn
    std::deque<Job> jobs;
    Memory memory;
    // Of the job that runs: the memory that its thread uses now, and memories that it may not
    // begin to use any more.
    const Memory* touched = nullptr;
    std::vector<const Memory*> revoked;
    // What to do when `touched` is not used any more.
    struct Wait {
      std::shared_ptr<Shared> owner;
      std::function<void()> done;
    };
    std::vector<Wait> waits;
  };
  struct Release {
    std::shared_ptr<Shared> owner;
    std::function<void()> done;
    base::EventLoop::Timer patience;
  };

  void enqueue(Job job);
  void schedule(Job job);
  void end_pause();
  // False: no thread can be had.
  [[nodiscard]] static bool begin_turn(const std::shared_ptr<Shared>& shared);
  static void take_turn(const std::shared_ptr<Shared>& shared, ReachThreads::Here& here);
  static void end_turn(const std::shared_ptr<Shared>& shared, ReachThreads::Descriptors& from);
  static void fail_all(const std::shared_ptr<Shared>& shared, ReachThreads::Descriptors* from);
  static bool run(Shared& shared, const Job& job, ReachThreads::Descriptors& descriptors);
  static bool begin_to_touch(Shared& shared, const Memory& memory);
  static void end_to_touch(Shared& shared, ReachThreads::Descriptors& descriptors);
  // On the loop, if it is sure to be there. `from`: of the calling thread; nullptr: the loop's.
  [[nodiscard]] static bool post(Shared& shared, std::function<void()> work,
                                 ReachThreads::Descriptors* from);
  // How a job has ended, the same way.
  [[nodiscard]] static bool tell(Shared& shared, std::function<void(bool)> done, bool ok,
                                 ReachThreads::Descriptors* from);
  // A part of a relay has ended, well or not: begins the next one, or ends the relay.
  static void go_on(Job job, bool ok, ReachThreads::Here& here);
  [[nodiscard]] static Job job_of(const std::shared_ptr<Relaying>& relaying, bool write);
  static void finish(const std::shared_ptr<Relaying>& relaying, RelayEnd how,
                     ReachThreads::Descriptors* from);
  void begins(const std::shared_ptr<Relaying>& relaying);
  void has_ended(const std::shared_ptr<Relaying>& relaying);
  void leave_relays();
  static void revoke(Shared& shared, Release release);

  base::EventLoop& loop_;
  std::shared_ptr<ReachThreads> threads_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::map<uint64_t, Release> releases_;
  uint64_t next_release_ = 0;
  size_t pending_ = 0;  // jobs that were begun, or can be
  unsigned pauses_ = 0;
  std::vector<std::shared_ptr<Relaying>> relays_;
  std::deque<Job> waiting_;  // for their end
};

}  // namespace vrdma::rdma
