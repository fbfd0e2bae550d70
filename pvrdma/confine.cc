#include "pvrdma/confine.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <sstream>
#include <string>

namespace vrdma::pvrdma {

namespace {

constexpr const char* kAllowed =
    // The VMM, the session and its events.
    "accept4 connect getpeername getsockname getsockopt recvfrom recvmsg sendmsg sendto setsockopt "
    "shutdown read readv write writev poll ppoll epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 "
    "epoll_wait eventfd2 timerfd_create timerfd_gettime timerfd_settime "
    // To find vrdmad again, and the process's own mappings.
    "access close close_range dup dup3 faccessat faccessat2 fcntl fstat fstatfs getdents64 lseek "
    "lstat newfstatat pread64 readlink readlinkat stat statfs statx "
    // Memory of the guest, arenas, malloc, threads.
    "brk madvise mincore mmap mprotect mremap msync munmap membarrier memfd_create futex "
    "exit exit_group get_robust_list gettid getcpu restart_syscall rseq rt_sigaction "
    "rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield set_robust_list sigaltstack tgkill "
    "getegid geteuid getgid getpid getppid getrandom getresgid getresuid getrlimit getrusage "
    "getuid "
    "prlimit64 sysinfo uname clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep "
    "time ";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
constexpr bool kFilters = false;
#else
constexpr bool kFilters = true;
#endif

}  // namespace

base::Result<void> keep_others_out() {
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return base::fail_errno("forbid tracing");
  return {};
}

base::Result<void> confine_system_calls(Role role) {
  if (!kFilters) return {};
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(
      ::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), ::seccomp_release);
  if (filter == nullptr) return base::fail(ENOMEM, "make a filter of system calls");
  int error = 0;
  const auto allow = [&](const std::string& name, auto... conditions) {
    const int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number == __NR_SCMP_ERROR) return;  // a later kernel's
    error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, sizeof...(conditions),
                                conditions...);
  };
  std::istringstream names(kAllowed);
  for (std::string name; names >> name;) allow(name);
  if (role == Role::kKeeper) {
    std::istringstream more("fchmod ftruncate prctl seccomp socketpair wait4");
    for (std::string name; more >> name;) allow(name);
    allow("kill", SCMP_A1(SCMP_CMP_EQ, SIGKILL));
  }
  constexpr uint64_t kWrites = O_ACCMODE | O_CREAT | O_TRUNC;
  constexpr uint64_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  // The flags of clone3() are in memory, so the C library uses this one.
  allow("clone", SCMP_A0(SCMP_CMP_MASKED_EQ, kNamespaces, 0));
  allow("open", SCMP_A1(SCMP_CMP_MASKED_EQ, kWrites, 0));
  allow("openat", SCMP_A2(SCMP_CMP_MASKED_EQ, kWrites, 0));
  for (const uint64_t family : {AF_UNIX, AF_NETLINK}) allow("socket", SCMP_A0(SCMP_CMP_EQ, family));
  if (error != 0) return base::fail(EINVAL, "list the system calls of a filter");
  if (const int failed = ::seccomp_load(filter.get()); failed != 0)
    return base::fail(-failed, "load a filter of system calls");
  return {};
}

}  // namespace vrdma::pvrdma
