// Touching a tenant's memory arena without making pages of it.
//
// The arena is a sparse file. A touch of our mapping where it has no page would make one, charged
// to the daemon, be it to read or to write. So each window onto an arena is registered with a
// userfaultfd(2) for missing pages, in the mode in which such a touch raises SIGBUS (since Linux
// 4.14). The kernel tells a page on the swap device from one that is missing, and there is no
// moment between a look and the touch in which the owner could take the page away.
//
// Where a page is missing, its owner makes it: by a job of its Reach, which takes the fault in the
// owner's address space, so that the owner's control group pays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/error.h"

namespace vrdma::transport {

class HoleGuard {
 public:
  // Once for the process, before any thread is made and before system calls are confined. It keeps
  // a userfaultfd and handles SIGBUS from then on. An error: this host has no userfaultfd; then no
  // window may be mapped at all, and all memory must be reached.
  [[nodiscard]] static base::Result<void> start();
  [[nodiscard]] static bool started();

  // Registers a mapping of an arena, until it is unmapped. What rdma::AddressSpace calls for each
  // window. False: the kernel refuses.
  [[nodiscard]] static bool watch(uint8_t* window, size_t size);

  // Runs `touch`. False: it met a missing page and was left there and then; what it had stored
  // before stands. So nothing in it may need a destructor.
  template <class F>
  [[nodiscard]] static bool run(F touch) {
    return run([](void* with) { (*static_cast<F*>(with))(); }, &touch);
  }

 private:
  [[nodiscard]] static bool run(void (*touch)(void*), void* with);
};

}  // namespace vrdma::transport
