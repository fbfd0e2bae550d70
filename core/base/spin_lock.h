// A lock for short sections that are entered millions of times per second.
//
// Unlocking is a plain store, and so is locking while the process has a single thread. A mutex
// needs two locked instructions, each of which first waits until all earlier stores are visible to
// other processors. A thread that waits spins, then yields, then sleeps for moments. Works with
// std::lock_guard and std::scoped_lock.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>

#include "core/base/single_thread.h"

namespace vrdma::base {

class SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void lock() {
    for (unsigned tries = 0; !try_lock(); ++tries) wait(tries);
  }
  [[nodiscard]] bool try_lock() {
    if (is_single_threaded()) {
      taken_.store(true, std::memory_order_relaxed);
      return true;
    }
    return !taken_.load(std::memory_order_relaxed) &&
           !taken_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static void wait(unsigned tries) {
    constexpr unsigned kSpins = 64, kYields = 64;
    if (tries < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (tries < kSpins + kYields) {
      ::sched_yield();
    } else {
      const timespec moment{0, 50'000};
      ::nanosleep(&moment, nullptr);
    }
  }

  std::atomic<bool> taken_ = false;
};

}  // namespace vrdma::base
