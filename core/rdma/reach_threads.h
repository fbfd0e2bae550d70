// The threads that reach the memory of one vdevice's processes (core/rdma/reach.h).
//
// A turn may fault in a page for as long as the page's owner likes. Therefore:
//
// - The number of threads is bounded, for each owner of this object and in total. A thread that
//   hangs counts until it ends, also when the session that it worked for has ended long before.
// - Their owner pays for the processor time that they use. When its meter says to wait, no turn
//   begins; one thread asks again, the others sleep.
// - Each thread has a descriptor table of its own, which is empty. The kernel closes a table with
//   the last thread that uses it; when the daemon is killed, its sockets and locks are released
//   although a thread of this kind cannot end yet.
#pragma once

#include <functional>
#include <memory>

#include "core/base/cpu_meter.h"
#include "core/base/fd.h"

namespace vrdma::rdma {

class ReachThreads {
 public:
  // A thread's view of the daemon's descriptors.
  class Descriptors {
   public:
    Descriptors();
    // A duplicate of the daemon's descriptor `number`, which must be open; invalid while the daemon
    // is being killed.
    [[nodiscard]] base::Fd take(int number) const;

   private:
    base::Fd daemon_;  // pidfd of this process
  };
  // What a turn runs with.
  struct Here {
    const Descriptors& descriptors;
    std::shared_ptr<base::CpuMeter> payer;  // of this turn; at first the owner of the threads
  };
  // Must not own a descriptor of the daemon's: what it owns goes on a thread that cannot close it.
  using Turn = std::function<void(Here&)>;

  static constexpr unsigned kMost = 16;
  // In the whole process, beyond one for each object.
  static constexpr unsigned kMostInTotal = 1024;

  // `payer`: none: nobody pays.
  explicit ReachThreads(std::shared_ptr<base::CpuMeter> payer = nullptr, unsigned most = kMost);
  ~ReachThreads();  // does not wait; turns that have not begun are dropped
  ReachThreads(const ReachThreads&) = delete;
  ReachThreads& operator=(const ReachThreads&) = delete;

  // Any thread. Runs `turn` on a thread as soon as one is free. false: there is no thread and none
  // can be made.
  [[nodiscard]] bool run(Turn turn);
  // Threads that have not ended, those that hang among them.
  [[nodiscard]] unsigned count() const;

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  // Waits for the next turn and until it may begin. false: the thread must end.
  [[nodiscard]] static bool take(Shared& shared, Turn* turn);
  std::shared_ptr<Shared> shared_;
};

}  // namespace vrdma::rdma
