#include "vrdmad/worker_system_calls.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mapping_query.h"

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;

namespace {

// With any arguments; grouped by purpose.
constexpr const char* kWithAnyArguments =
    // Messages of control, the broker and programs; memory of programs; packets; wake-ups.
    "read write readv writev pread64 pwrite64 preadv preadv2 pwritev pwritev2 recvmsg sendmsg "
    "recvfrom sendto recvmmsg sendmmsg shutdown getsockopt setsockopt bind close close_range dup "
    "eventfd2 "
    // Arenas, bell files, windows onto them, malloc. No file can be named in the empty root.
    "brk munmap mremap madvise mincore msync memfd_create ftruncate fallocate fstat statx lseek "
    // The fence that is free on its frequent side: core/base/asymmetric_fence.h
    "membarrier "
    // Threads that reach memory (core/rdma/reach_threads.cc), and their descriptors.
    "futex rseq set_robust_list get_robust_list set_tid_address exit exit_group pidfd_getfd "
    "sched_yield sched_getaffinity getcpu "
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait "
    "sigaltstack restart_syscall "
    // Loops and their timers.
    "epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 poll ppoll timerfd_create "
    "timerfd_settime timerfd_gettime clock_gettime clock_getres clock_nanosleep nanosleep "
    "gettimeofday time "
    // Its own identity and use.
    "getpid gettid getppid getuid geteuid getgid getegid getrusage getrandom ";

using Arguments = std::vector<scmp_arg_cmp>;
struct Rule {
  const char* name;
  Arguments arguments;
};

// The kernel ignores the upper half of these arguments.
scmp_arg_cmp is(unsigned argument, uint64_t value) {
  return SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, uint64_t{0xffffffff}, value & 0xffffffff);
}
scmp_arg_cmp without(unsigned argument, uint64_t bits) {
  return SCMP_CMP64(argument, SCMP_CMP_MASKED_EQ, bits, uint64_t{0});
}

// With these arguments alone.
std::vector<Rule> rules() {
  const auto self = static_cast<uint64_t>(::getpid());
  constexpr uint64_t kThread = CLONE_THREAD | CLONE_VM | CLONE_SIGHAND;
  constexpr uint64_t kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                   CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  std::vector<Rule> all{
      {"mmap", {without(2, PROT_EXEC)}},
      {"mprotect", {without(2, PROT_EXEC)}},
      {"clone", {SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, kThread | kNamespaces, kThread)}},
      {"socketpair", {is(0, AF_UNIX)}},  // of completion channels
      {"prctl", {is(0, PR_SET_NAME)}},
      {"newfstatat", {is(3, AT_EMPTY_PATH)}},  // fstat(3) of some C libraries
      {"prlimit64", {is(0, 0), scmp_arg_cmp{2, SCMP_CMP_EQ, 0, 0}}},  // to read
      {"setpriority", {is(0, PRIO_PROCESS), is(1, 0)}},               // of the calling thread
      {"pidfd_open", {is(0, self)}},
      {"tgkill", {is(0, self)}},  // abort(3)
  };
  for (const int command :
       {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GET_SEALS, F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC})
    all.push_back({"fcntl", {is(1, static_cast<uint64_t>(command))}});
  for (const uint64_t request : std::initializer_list<uint64_t>{
           UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_COPY,
           UFFDIO_ZEROPAGE, UFFDIO_WRITEPROTECT, UFFDIO_CONTINUE, base::kMappingQuery})
    all.push_back({"ioctl", {is(1, request)}});
  return all;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
constexpr bool kFilters = false;
#else
constexpr bool kFilters = true;
#endif

using Filter = std::unique_ptr<void, void (*)(scmp_filter_ctx)>;

int add(const Filter& filter, uint32_t action, const Rule& rule) {
  const int number = ::seccomp_syscall_resolve_name(rule.name);
  if (number == __NR_SCMP_ERROR) return 0;  // not on this architecture
  return ::seccomp_rule_add_array(filter.get(), action, number,
                                  static_cast<unsigned>(rule.arguments.size()),
                                  rule.arguments.data());
}

}  // namespace

std::string worker_calls() {
  std::string all = kWithAnyArguments;
  for (const Rule& rule : rules()) all += std::string(rule.name) + " ";
  return all;
}

base::Result<void> confine_worker() {
  if (!kFilters) return {};
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("forbid tracing");
  const Filter filter(::seccomp_init(SCMP_ACT_KILL_PROCESS), ::seccomp_release);
  if (filter == nullptr) return fail(ENOMEM, "make a filter of system calls");
  int error = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  // Not a stream: a worker has no use for locales, whose tables it would have in its own memory.
  std::string_view names(kWithAnyArguments);
  while (error == 0 && !names.empty()) {
    const std::string name(names.substr(0, names.find(' ')));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (!name.empty()) error = add(filter, SCMP_ACT_ALLOW, {name.c_str(), {}});
  }
  for (const Rule& rule : rules())
    if (error == 0) error = add(filter, SCMP_ACT_ALLOW, rule);
  // Its flags are in memory. The C library uses clone(2) then.
  if (error == 0) error = add(filter, SCMP_ACT_ERRNO(ENOSYS), {"clone3", {}});
  if (error == 0) error = ::seccomp_load(filter.get());
  if (error != 0) return fail(-error, "load the filter of system calls of a worker");
  return {};
}

}  // namespace vrdma::vrdmad
