#include "cli/hook/init.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/hook/apart.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;

Result<Fd> open_namespace(pid_t pid, const char* kind) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
  Fd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return base::fail_errno("open " + path);
  return opened;
}

bool has_ended(const Fd& process) {
  pollfd state{process.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) != 0;
}

Result<bool> is_own_user_namespace(const Fd& user) {
  struct stat own {
  }, other{};
  if (::stat("/proc/self/ns/user", &own) != 0 || ::fstat(user.get(), &other) != 0)
    return base::fail_errno("compare user namespaces");
  return own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

Result<void> enter_user_namespace(const Fd& user) {
  if (::setns(user.get(), CLONE_NEWUSER) != 0)
    return base::fail_errno("enter the user namespace of the container");
  if (::setresgid(0, 0, 0) != 0 || ::setresuid(0, 0, 0) != 0)
    return base::fail_errno("become root in the user namespace of the container");
  end_with_parent();
  return {};
}

}  // namespace

Result<Init> open_init(pid_t pid) {
  if (pid == 0) return base::fail(ESRCH, "the state of the container names no process");
  Init init;
  init.process = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!init.process.valid())
    return base::fail_errno("open process " + std::to_string(pid) + " of the container");
  for (const auto& [kind, into] :
       {std::pair{"net", &init.net}, {"mnt", &init.mount}, {"user", &init.user}}) {
    auto opened = open_namespace(pid, kind);
    if (!opened) return base::pass(std::move(opened).error());
    *into = std::move(*opened);
  }
  if (has_ended(init.process))
    return base::fail(ESRCH,
                      "process " + std::to_string(pid) + " of the container has ended already");
  return init;
}

Result<void> enter_mounts(const Init& init) {
  const auto own = is_own_user_namespace(init.user);
  if (!own) return base::pass(own.error());
  if (!*own)
    if (auto entered = enter_user_namespace(init.user); !entered) return entered;
  if (::setns(init.mount.get(), CLONE_NEWNS) != 0)
    return base::fail_errno("enter the mount namespace of the container");
  return {};
}

}  // namespace vrdma::cli::hook
