// A fence that costs nothing on one side.
//
// Two threads, possibly of two processes, each store one word and then load the other's (Dekker).
// One of them must see the other's store, so each needs a full fence between its store and its
// load. Where one side is frequent and the other rare, the rare side pays for both:
//
//   frequent: store x; light(); load y          rare: store y; heavy(); load x
//
// heavy() is membarrier(2) MEMBARRIER_CMD_GLOBAL_EXPEDITED, which executes a fence on every CPU
// that runs a process registered for it. light() may be free only if register_process() succeeded
// on both sides; they agree on this when a session starts, and pass the result as `cheap`.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace vrdma::base {

class AsymmetricFence {
 public:
  // Registers this process; false if the kernel refuses. Lost at execve(2), kept across fork(2).
  [[nodiscard]] static bool register_process() {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  }

  static void light(bool cheap) {
    if (cheap)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  static void heavy() {
    ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
};

}  // namespace vrdma::base
