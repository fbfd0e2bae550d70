#include "cli/web/confine.h"

#include <grp.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>

namespace vrdma::cli::web {

namespace {

constexpr id_t kNobody = 65534;

// Sockets and timers that there are, memory, time.
constexpr const char* kAllowed =
    "accept4 getpeername getsockname getsockopt read recvfrom sendto setsockopt shutdown write "
    "epoll_ctl epoll_pwait epoll_pwait2 epoll_wait poll ppoll timerfd_settime close fcntl "
    "brk exit exit_group futex getpid getrandom gettid madvise mmap mprotect mremap munmap "
    "restart_syscall rt_sigaction rt_sigprocmask rt_sigreturn sched_yield tgkill "
    "clock_gettime clock_nanosleep gettimeofday time ";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
constexpr bool kFilters = false;
#else
constexpr bool kFilters = true;
#endif

// Into a directory that is deleted, so that nobody can put anything into it.
base::Result<void> leave_files() {
  std::array<char, 32> path{"/tmp/vrdmactl-web.XXXXXX"};
  if (::mkdtemp(path.data()) == nullptr) return base::fail_errno("make an empty directory in /tmp");
  const bool is_inside = ::chdir(path.data()) == 0;
  const bool is_deleted = ::rmdir(path.data()) == 0;
  if (!is_inside || !is_deleted || ::chroot(".") != 0)
    return base::fail_errno("change to an empty root");
  return {};
}

base::Result<void> become_nobody() {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0)
    return base::fail_errno("become nobody");
  return {};
}

base::Result<void> confine_system_calls() {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(
      ::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), ::seccomp_release);
  if (filter == nullptr) return base::fail(ENOMEM, "make a filter of system calls");
  std::istringstream names(kAllowed);
  for (std::string name; names >> name;) {
    const int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number == __NR_SCMP_ERROR) continue;  // not on this architecture
    if (const int error = ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, 0); error != 0)
      return base::fail(-error, "allow " + name);
  }
  if (const int error = ::seccomp_load(filter.get()); error != 0)
    return base::fail(-error, "load a filter of system calls");
  return {};
}

}  // namespace

base::Result<void> confine() {
  if (::geteuid() == 0) {
    if (kFilters)
      if (auto done = leave_files(); !done) return done;
    if (auto done = become_nobody(); !done) return done;
  }
  const rlimit none{0, 0};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::setrlimit(RLIMIT_CORE, &none) != 0 ||
      (kFilters && ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0))
    return base::fail_errno("give up privileges");
  return kFilters ? confine_system_calls() : base::Result<void>();
}

}  // namespace vrdma::cli::web
