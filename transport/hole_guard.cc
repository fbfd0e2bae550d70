#include "transport/hole_guard.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>

#include "core/base/fd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace vrdma::transport {

namespace {

int userfaultfd = -1;  // of the process, kept until it ends
thread_local jmp_buf* recovery = nullptr;

// Of an access in run(), where to go on; any other is a fault of the daemon, which the same access
// raises again.
void on_bus_error(int, siginfo_t*, void* context) {
  if (recovery != nullptr) {
    // The handler does not return, so it restores the signal mask itself.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    ::longjmp(*recovery, 1);
  }
  ::signal(SIGBUS, SIG_DFL);
}

base::Result<base::Fd> open_userfaultfd() {
  // For faults in user mode alone it needs no privilege, since Linux 5.11.
  base::Fd fd;
  for (const int mode : {UFFD_USER_MODE_ONLY, 0}) {
    fd = base::Fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | mode)));
    if (fd.valid()) break;
  }
  if (!fd.valid()) return base::fail_errno("make a userfaultfd");
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MISSING_SHMEM;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
    return base::fail_errno("ask a userfaultfd for SIGBUS");
  return fd;
}

}  // namespace

base::Result<void> HoleGuard::start() {
  if (started()) return {};
  auto fd = open_userfaultfd();
  if (!fd) return base::pass(std::move(fd.error()));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  if (::sigaction(SIGBUS, &action, nullptr) != 0) return base::fail_errno("handle SIGBUS");
  userfaultfd = fd->release();
  return {};
}

bool HoleGuard::started() { return userfaultfd >= 0; }

bool HoleGuard::watch(uint8_t* window, size_t size) {
  uffdio_register request{};
  request.range = {reinterpret_cast<uintptr_t>(window), size};
  request.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ::ioctl(userfaultfd, UFFDIO_REGISTER, &request) == 0;
}

bool HoleGuard::run(void (*touch)(void*), void* with) {
  jmp_buf place;
  jmp_buf* const before = recovery;
  if (::_setjmp(place) != 0) {
    recovery = before;
    return false;
  }
  recovery = &place;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  touch(with);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  recovery = before;
  return true;
}

}  // namespace vrdma::transport
