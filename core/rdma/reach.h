// Reaching memory that is not in place, by the owner's page tables (/proc/PID/mem).
//
// A page may fault for as long as its owner likes (userfaultfd, FUSE, a stopped network mount), so
// each process that has such memory gets a thread of its own: only its own work waits for it.
// Jobs run in the order submitted; `done` runs on the event loop's thread. Never
// process_vm_writev: a pid survives execve(2), the descriptor does not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"

namespace vrdma::rdma {

class Reach {
 public:
  // A process's memory. Whoever changes a word of it in place of the processor holds `changes`,
  // which all that reach this process share: a process may have opened devices more than once, and
  // let others have its memory.
  struct Memory {
    base::Fd file;  // /proc/PID/mem
    std::shared_ptr<std::mutex> changes;
  };
  struct Part {
    uint64_t addr = 0;
    uint64_t length = 0;
    uint64_t offset = 0;  // in the buffer
    // Of another process that let this one have its memory, or nullptr: of the reach's own.
    std::shared_ptr<const Memory> memory = nullptr;
  };
  struct Job {
    bool write = false;  // buffer -> memory; else memory -> buffer
    std::vector<Part> parts;
    std::shared_ptr<std::vector<uint8_t>> buffer;
    // With it, the only part is a word of eight bytes: what stands there goes to the buffer, and
    // what this makes of it is written back. No other job's change falls in between. Runs on the
    // reach's thread.
    std::function<uint64_t(uint64_t old)> change;
    std::function<void(bool ok)> done;  // ok: every byte was there and allowed
  };

  // The thread starts with a job, and ends when there has been none for a while.
  Reach(base::EventLoop& loop, Memory memory);
  ~Reach();  // does not wait for a job that hangs; jobs not begun are dropped with their `done`
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  // For the parts of other processes' jobs; outlives this.
  [[nodiscard]] std::shared_ptr<const Memory> memory() const { return {shared_, &shared_->memory}; }

  void submit(Job job);
  // Calls `done` when all jobs submitted so far have ended; at once if there is none.
  void barrier(std::function<void()> done);

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    bool stopped = false;
    bool running = false;  // there is a thread
    Memory memory;
  };
  static void work(const std::shared_ptr<Shared>& shared, base::EventLoop* loop,
                   const std::weak_ptr<int>& alive);

  base::EventLoop& loop_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  size_t pending_ = 0;
};

}  // namespace vrdma::rdma
