// A table of the process, and its lock, for a child of fork(3) made while another thread had the
// lock.
//
// The fork waits for no thread, which might wait for the forking one. If none changes the table,
// the child inherits it, otherwise an empty one, as it always does with `Inherits` false. Its lock
// is free. It is in static memory, which is the child's own from the first on; allocated memory
// might still be the parent's when handlers run (client/device/memory/table.h).
//
// A child of vfork(2) or clone(2) runs no handlers. To it is_own() is false: its descriptors are
// its own, but the table may be the parent's, so it must not be touched.
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <shared_mutex>

namespace vrdma::client {

template <class Content, bool Inherits = true>
struct AcrossFork {
  std::shared_mutex mutex;
  Content content;  // under the mutex

  static AcrossFork& instance() {
    alignas(AcrossFork) static std::byte room[sizeof(AcrossFork)];  // never destroyed
    static AcrossFork* const all = [] {
      ::pthread_atfork([] { instance().before(); }, [] { instance().after_in_parent(); },
                       [] { instance().after_in_child(); });
      return new (room) AcrossFork;
    }();
    return *all;
  }
  // True in a child that did not inherit what its parent had.
  [[nodiscard]] bool is_forgotten() const { return forgotten_; }
  [[nodiscard]] bool is_own() const { return process_.load() == ::getpid(); }

 private:
  void before() { held_ = Inherits && mutex.try_lock_shared(); }
  void after_in_parent() {
    if (held_) mutex.unlock_shared();
  }
  void after_in_child() {
    new (&mutex) std::shared_mutex;
    if (!held_) {
      new (&content) Content;
      forgotten_ = true;
    }
    process_ = ::getpid();
  }

  std::atomic<pid_t> process_ = ::getpid();
  std::atomic<bool> forgotten_ = false;
  static inline thread_local bool held_ = false;  // threads may fork at the same time
};

}  // namespace vrdma::client
