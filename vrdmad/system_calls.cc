#include "vrdmad/system_calls.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>

#include <memory>
#include <sstream>
#include <string>

#include "vrdmad/worker_system_calls.h"

namespace vrdma::vrdmad {

namespace {

// Grouped by purpose; adjacent strings are one.
constexpr const char* kAllowed =
    // Files of the run and state directories, /proc, /sys, the configuration, the log; SQLite.
    "access chmod chown close close_range copy_file_range dup dup2 dup3 "
    "faccessat faccessat2 fallocate fchmod fchmodat fchown fchownat fcntl "
    "fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents64 ioctl "
    "link linkat lseek lstat mkdir mkdirat newfstatat open openat "
    "openat2 pipe pipe2 pread64 preadv pwrite64 pwritev read readlink "
    "readlinkat readv rename renameat renameat2 rmdir stat statfs statx "
    "setxattr symlink symlinkat umask unlink unlinkat utimensat write writev "
    // Arenas, bell files, windows onto them (core/base/mapping.h), and malloc.
    "brk madvise memfd_create mincore mlock mmap mprotect mremap msync "
    "munlock munmap "
    // The fence that is free on its frequent side: core/base/asymmetric_fence.h
    "membarrier "
    // Threads of workers, reach and gRPC; exit and signals.
    "arch_prctl clone clone3 exit exit_group futex futex_waitv "
    "get_robust_list getcpu gettid prctl restart_syscall rseq rt_sigaction "
    "rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigtimedwait "
    "setpriority sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam "
    "sched_getscheduler sched_setaffinity sched_yield set_robust_list set_tid_address "
    "sigaltstack tgkill "
    // Loops and their timers: core/base/event_loop.cc; gRPC; the metrics' HTTP server.
    "clock_getres clock_gettime clock_nanosleep epoll_create1 epoll_ctl epoll_pwait "
    "epoll_pwait2 epoll_wait eventfd2 gettimeofday nanosleep poll ppoll "
    "pselect6 select signalfd4 time timerfd_create timerfd_gettime "
    "timerfd_settime "
    // Session, rdma_cm and admin sockets, rtnetlink, packets.
    "accept accept4 bind connect getpeername getsockname getsockopt listen "
    "recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt shutdown "
    "socket socketpair "
    // The process's own identity and limits.
    "capget getegid geteuid getgid getgroups getpid getppid getrandom "
    "getresgid getresuid getrlimit getrusage getuid prlimit64 sysinfo times "
    "uname "
    // The identity and end of a client, and its descriptors after a restart: core/rdma/process.cc
    "kcmp pidfd_getfd pidfd_open pidfd_send_signal ";

// The broker: inspect processes, make sockets in their namespaces, in threads. Also what a worker
// process needs (worker_calls()), because it inherits the filter.
constexpr const char* kAllowedToBroker =
    "accept4 bind getsockname getsockopt ioctl listen pidfd_getfd pidfd_open pidfd_send_signal "
    "poll ppoll recvfrom recvmsg sendmsg sendto setns setsockopt socket socketpair umask "
    "access close close_range dup faccessat faccessat2 fchmod fcntl fstat fstatfs "
    "getdents64 lseek lstat mkdir mkdirat newfstatat open openat pread64 read readlink "
    "readlinkat rename renameat renameat2 rmdir stat statfs statx unlink unlinkat write writev "
    "brk clone clone3 exit exit_group futex get_robust_list getegid geteuid getgid getpid "
    "getrandom gettid getuid madvise memfd_create mmap mprotect mremap munmap prctl "
    "restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield "
    "set_robust_list tgkill uname "
    "clock_gettime clock_nanosleep nanosleep "
    // Start and reap worker processes: vrdmad/broker/worker_child.cc
    "capset chdir chroot dup2 dup3 execveat fchdir pidfd_send_signal pipe2 prlimit64 setgroups "
    "setresgid setresuid wait4 waitid "
    // The start of a program, and what a worker does before its own filter.
    "arch_prctl seccomp set_tid_address userfaultfd ";

// The intake process: receive, judge and close, in threads. forbid() limits ioctl and
// pidfd_send_signal.
constexpr const char* kAllowedToIntake =
    "close close_range fcntl getsockopt ioctl pidfd_send_signal poll ppoll recvmsg sendmsg "
    "shutdown "
    "statx write "
    "brk clone clone3 exit exit_group futex get_robust_list getpid getrandom gettid madvise mmap "
    "mprotect mremap munmap prctl restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn "
    "sched_getaffinity sched_yield set_robust_list tgkill "
    "clock_gettime clock_nanosleep ";

// The stopper: inspect threads, stop them and wait, in threads.
constexpr const char* kAllowedToStopper =
    "ptrace wait4 waitid set_robust_list "
    "close close_range faccessat faccessat2 fcntl fstat fstatfs getdents64 lseek newfstatat openat "
    "poll ppoll read recvmsg sendmsg sendto shutdown statx write "
    "brk clone clone3 exit exit_group futex get_robust_list getpid getrandom gettid madvise mmap "
    "mprotect mremap munmap prctl restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn "
    "sched_getaffinity sched_yield set_tid_address tgkill timer_create timer_delete timer_settime "
    "clock_gettime clock_nanosleep nanosleep ";

// The process of metrics for other hosts: accept, TLS, read certificates again, log.
constexpr const char* kAllowedToMetrics =
    "accept4 getpeername getsockname getsockopt read readv recvfrom recvmsg sendmsg sendto "
    "setsockopt shutdown write writev "
    "epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 poll ppoll "
    "access close faccessat faccessat2 fcntl fstat ioctl lseek lstat newfstatat openat pread64 "
    "readlink stat statx "
    "brk exit exit_group futex getegid geteuid getgid getpid getrandom gettid getuid madvise mmap "
    "mprotect mremap munmap restart_syscall rt_sigaction rt_sigprocmask rt_sigreturn "
    "sched_getaffinity sched_yield sigaltstack sysinfo uname "
    "clock_gettime clock_nanosleep gettimeofday nanosleep time ";

// A sanitizer's runtime needs other calls.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
constexpr bool kFilters = false;
#else
constexpr bool kFilters = true;
#endif

using Filter = std::unique_ptr<void, void (*)(scmp_filter_ctx)>;

base::Result<void> load(const Filter& filter) {
  if (const int error = ::seccomp_load(filter.get()); error != 0)
    return base::fail(-error, "load a filter of system calls");
  return {};
}

enum class Limit : uint8_t {
  kNone,
  kOnlyReads,   // opens no file for writing
  kOnlyJudges,  // asks for the type of a namespace and whether a process exists, and sends no
                // signal
};

// What some of the calls above must not be used for: to type on a terminal as its owner, to enter
// namespaces in which the process has capabilities, and what `limit` says. The kernel applies both
// filters.
base::Result<void> forbid(Limit limit) {
  const Filter filter(::seccomp_init(SCMP_ACT_ALLOW), ::seccomp_release);
  if (filter == nullptr) return base::fail(ENOMEM, "make a filter of system calls");
  constexpr uint64_t kCommand = 0xffffffff;  // the kernel ignores the rest
  int error = 0;
  for (const uint64_t command : {TIOCSTI, TIOCLINUX})
    error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                                SCMP_A1(SCMP_CMP_MASKED_EQ, kCommand, command));
  for (const uint64_t flag : {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                              CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET})
    error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                                SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
  if (limit == Limit::kOnlyJudges) {
    error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                                SCMP_A1(SCMP_CMP_NE, uint64_t{NS_GET_NSTYPE}, 0));
    error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(pidfd_send_signal), 1,
                                SCMP_A1(SCMP_CMP_NE, uint64_t{0}, 0));
  }
  if (limit == Limit::kOnlyReads)
    for (const uint64_t flag : {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC})
      error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(openat), 1,
                                  SCMP_A2(SCMP_CMP_MASKED_EQ, flag, flag));
  // Its flags are in memory. The C library uses clone(2) then.
  error |= ::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  if (error != 0) return base::fail(EINVAL, "make a filter of system calls");
  return load(filter);
}

base::Result<void> allow(const std::string& calls, Limit limit = Limit::kNone) {
  if (!kFilters) return {};
  // First, because it must be loaded by a call that the other need not allow.
  if (auto done = forbid(limit); !done) return done;
  const Filter filter(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), ::seccomp_release);
  if (filter == nullptr) return base::fail(ENOMEM, "make a filter of system calls");
  std::istringstream names(calls);
  for (std::string name; names >> name;) {
    const int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number == __NR_SCMP_ERROR) continue;  // not on this architecture
    if (const int error = ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, 0); error != 0)
      return base::fail(-error, "allow " + name);
  }
  return load(filter);
}

}  // namespace

base::Result<void> confine_system_calls() { return allow(kAllowed); }

base::Result<void> confine_broker() { return allow(kAllowedToBroker + worker_calls()); }

base::Result<void> confine_intake() { return allow(kAllowedToIntake, Limit::kOnlyJudges); }

base::Result<void> confine_metrics() { return allow(kAllowedToMetrics, Limit::kOnlyReads); }

base::Result<void> confine_stopper() { return allow(kAllowedToStopper, Limit::kOnlyReads); }

}  // namespace vrdma::vrdmad
