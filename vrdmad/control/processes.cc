#include "vrdmad/control/processes.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "core/base/out_of_files.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad {

using base::fail;
using base::pass;
using base::Result;

namespace {

std::string process_of(const Owner& owner) { return "process " + std::to_string(owner.pid); }

// Opens the pidfd first: while its process lives, /proc/PID is that of the same process.
struct Living {
  base::Fd pidfd;
  uint64_t start_time = 0;
};
Result<Living> open_process(const Owner& owner) {
  constexpr uint32_t kLargestPid = 1u << 22;  // PID_MAX_LIMIT
  if (owner.pid == 0 || owner.pid > kLargestPid)
    return fail(EINVAL, std::to_string(owner.pid) + " is not a valid process id");
  Living living;
  living.pidfd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, owner.pid, 0)));
  if (!living.pidfd.valid()) {
    if (errno == ESRCH) return fail(ESRCH, "there is no " + process_of(owner));
    // A thread that is not its process's leader: ENOENT since Linux 6.9.
    if (errno == EINVAL || errno == ENOENT)
      return fail(EINVAL, process_of(owner) + " cannot be an owner: it is a thread, not a process");
    if (base::out_of_files(errno))
      return fail(errno, "vrdmad has too many open files to watch " + process_of(owner));
    return base::fail_errno("watch " + process_of(owner));
  }
  const auto start_time = rdma::start_time_of(static_cast<pid_t>(owner.pid));
  if (!start_time && start_time.error().code() != ESRCH) return pass(start_time.error());
  if (!start_time || !rdma::is_alive(living.pidfd))
    return fail(ESRCH, process_of(owner) + " has ended");
  living.start_time = *start_time;
  return living;
}

struct PidfdWatch final : Processes::Watch {
  base::Fd pidfd;
  base::EventLoop::Watch watch;
};

std::string present_boot() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id;
}

}  // namespace

HostProcesses::HostProcesses(base::EventLoop& loop) : HostProcesses(loop, present_boot()) {}

Result<Owner> HostProcesses::identify(const Owner& said) {
  if (!said.boot_id.empty() && said.boot_id != boot_id_)
    return fail(ESRCH, process_of(said) + " is from another boot");
  auto living = open_process(said);
  if (!living) return pass(std::move(living.error()), "the owner");
  if (said.start_time != 0 && said.start_time != living->start_time)
    return fail(ESRCH, "the owner: " + process_of(said) + " does not have start time " +
                           std::to_string(said.start_time));
  return Owner{said.pid, living->start_time, boot_id_};
}

Result<std::unique_ptr<Processes::Watch>> HostProcesses::watch(const Owner& owner,
                                                               std::function<void()> ended) {
  if (owner.boot_id != boot_id_) return fail(ESRCH, process_of(owner) + " ended with its boot");
  auto living = open_process(owner);
  if (!living) return pass(std::move(living.error()));
  if (living->start_time != owner.start_time)
    return fail(ESRCH, process_of(owner) + " has ended; another process has its pid");
  auto made = std::make_unique<PidfdWatch>();
  made->pidfd = std::move(living->pidfd);
  // The pidfd of a dead process stays readable, so the watch fires once; it must not be destroyed
  // inside its callback.
  auto watch = loop_.watch(made->pidfd.get(), EPOLLIN | EPOLLONESHOT,
                           [ended = std::move(ended)](uint32_t) { ended(); });
  if (!watch) return pass(std::move(watch.error()), "watch " + process_of(owner));
  made->watch = std::move(*watch);
  return made;
}

}  // namespace vrdma::vrdmad
