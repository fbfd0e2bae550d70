// The threads that reach the memory of one vdevice's processes (core/rdma/reach.h).
//
// A turn may fault in a page for as long as the page's owner likes. Therefore:
//
// - The number of threads is bounded, for each owner of this object and in total. A thread that
//   hangs counts until it ends, also when the session that it worked for has ended long before.
// - Their owner pays for the processor time that they use. When its meter says to wait, no turn
//   begins; one thread asks again, the others sleep.
// - Each thread has a descriptor table of its own, which is empty but for a few files that it used
//   last: memory of processes, and what wakes an event loop. The kernel closes a table with the
//   last thread that uses it; when the daemon is killed, its sockets and locks are released
//   although a thread of this kind cannot end yet.
//
// A thread that had a turn waits for the next one awake for a moment (core/base/linger.h), because
// to wake a thread takes longer than most turns; one of each object, at most.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "core/base/cpu_meter.h"
#include "core/base/fd.h"
#include "core/base/linger.h"

namespace vrdma::rdma {

// Any thread reads it.
struct ReachCounters {
  std::atomic<uint64_t> turns = 0;  // that have begun
};

class ReachThreads {
  struct Shared;

 public:
  // A thread's view of the daemon's descriptors.
  class Descriptors {
   public:
    Descriptors();
    // A duplicate of the daemon's descriptor `number`, which must be open; invalid while the daemon
    // is being killed.
    [[nodiscard]] base::Fd take(int number) const;
    // The same, which the thread keeps for its next turns until it needs others; -1 instead of
    // invalid. Good until the next call. `serial`, of next_serial(), names the file: `number` may
    // become another one's.
    [[nodiscard]] int keep(int number, uint64_t serial);
    [[nodiscard]] static uint64_t next_serial();

   private:
    struct Kept {
      uint64_t serial = 0;
      base::Fd fd;
    };
    base::Fd daemon_;  // pidfd of this process
    std::array<Kept, 8> kept_;
    size_t oldest_ = 0;
  };
  // What a turn runs with.
  struct Here {
    Descriptors& descriptors;
    std::shared_ptr<base::CpuMeter> payer;  // of this turn; at first the owner of the threads
    std::shared_ptr<Shared> counted;        // among whose threads this one counts
  };
  // Must not own a descriptor of the daemon's: what it owns goes on a thread that cannot close it.
  using Turn = std::function<void(Here&)>;

  static constexpr unsigned kMost = 16;
  // In the whole process, beyond one for each object.
  static constexpr unsigned kMostInTotal = 1024;

  // `payer`: none: nobody pays.
  explicit ReachThreads(
      std::shared_ptr<base::CpuMeter> payer = nullptr, unsigned most = kMost,
      std::shared_ptr<ReachCounters> counters = std::make_shared<ReachCounters>());
  ~ReachThreads();  // does not wait; turns that have not begun are dropped
  ReachThreads(const ReachThreads&) = delete;
  ReachThreads& operator=(const ReachThreads&) = delete;

  // Any thread. Runs `turn` on a thread as soon as one is free. false: there is no thread and none
  // can be made.
  [[nodiscard]] bool run(Turn turn);
  // Has the calling thread, in a turn of other threads, count among these until the turn ends, so
  // that what it does next cannot hang at the others' expense. false: it may not, because there are
  // as many as can be, or their meter says to wait.
  [[nodiscard]] bool lend(Here& here) const;
  // Threads that have not ended, those that hang among them.
  [[nodiscard]] unsigned count() const;
  [[nodiscard]] const ReachCounters& counters() const;

 private:
  static void start(const std::shared_ptr<Shared>& shared);
  static void work(const std::shared_ptr<Shared>& shared);
  // Waits for the next turn and until it may begin. false: the thread must end.
  [[nodiscard]] static bool take(const std::shared_ptr<Shared>& of, Turn* turn,
                                 base::Linger& linger);
  static void linger_a_moment(Shared& shared, std::unique_lock<std::mutex>& lock,
                              base::Linger& linger);
  static void count_out(Shared& shared);
  static bool come_home(Here& here, const std::shared_ptr<Shared>& home);
  std::shared_ptr<Shared> shared_;
};

}  // namespace vrdma::rdma
