#include "vrdmad/privileges.h"

#include <cap-ng.h>
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace vrdma::vrdmad {

using base::fail;
using base::fail_errno;
using base::Result;

namespace {

// Not listed: what only main.cc needs, before this: CAP_SYS_RESOURCE, to raise RLIMIT_NOFILE;
// CAP_CHOWN, to give the daemon's user its directories. The reader of the unit file relies on these
// comments, so each states a purpose.
constexpr std::array kNeeded{
    // setns(2) into a vdevice's network namespace, to create sockets there: netns/netns.cc,
    // vrdmad/broker/local_broker.cc
    unsigned{CAP_SYS_ADMIN},
    // /proc/PID/mem, /proc/PID/ns/net and descriptors of processes of other users:
    // core/rdma/peer.cc, vrdmad/broker/held_files.cc, netns/netns.cc
    unsigned{CAP_SYS_PTRACE},
    // to open the same for writing, which their mode permits only to their owner, and
    // /dev/userfaultfd if a host gives it to a group: core/rdma/peer.cc,
    // vrdmad/broker/local_broker.cc
    unsigned{CAP_DAC_OVERRIDE},
    // links and addresses of other namespaces (IFA_TARGET_NETNSID), numbers for them
    // (RTM_NEWNSID), large receive buffers for their events: netns/route_socket.cc
    unsigned{CAP_NET_ADMIN},
    // links of all namespaces by one socket (NETLINK_LISTEN_ALL_NSID): netns/route_socket.cc
    unsigned{CAP_NET_BROADCAST},
    // packet sockets for raw packet queue pairs: vrdmad/broker/local_broker.cc
    unsigned{CAP_NET_RAW},
    // the empty root of worker processes: vrdmad/broker/worker_child.cc, as for all below
    unsigned{CAP_SYS_CHROOT},
    // to give each worker process its own user, without groups
    unsigned{CAP_SETUID},
    unsigned{CAP_SETGID},
    // to empty their capability bounding set
    unsigned{CAP_SETPCAP},
    // to kill them, as they have another user; also for the signal at the end of their parent
    unsigned{CAP_KILL},
};

// libcap-ng keeps what it was told in a thread-local variable.
Result<void> apply(bool bounds) {
  if (const int failed = ::capng_apply(bounds ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS); failed != 0)
    return fail(EPERM, "drop capabilities: libcap-ng returns " + std::to_string(failed));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("set no-new-privs");
  return {};
}

// Without CAP_SETPCAP the bounding set cannot be reduced; no-new-privileges suffices then.
bool can_reduce_bounds() { return ::capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0; }

}  // namespace

std::vector<std::string> missing_capabilities() {
  std::vector<std::string> missing;
  ::capng_get_caps_process();
  for (const unsigned each : kNeeded)
    if (::capng_have_capability(CAPNG_PERMITTED, each) == 0)
      missing.emplace_back(::capng_capability_to_name(each));
  return missing;
}

Result<void> keep_broker_privileges() {
  ::capng_get_caps_process();
  std::array<bool, kNeeded.size()> held{};
  for (size_t i = 0; i < kNeeded.size(); ++i)
    held[i] = ::capng_have_capability(CAPNG_PERMITTED, kNeeded[i]) != 0;
  const bool bounds = can_reduce_bounds();
  ::capng_clear(CAPNG_SELECT_ALL);
  for (size_t i = 0; i < kNeeded.size(); ++i)
    if (held[i])
      ::capng_update(
          CAPNG_ADD,
          static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
          kNeeded[i]);
  return apply(bounds);
}

Result<void> drop_privileges(const User& user) {
  ::capng_get_caps_process();
  const bool bounds = can_reduce_bounds();
  ::capng_clear(CAPNG_SELECT_ALL);
  if (bounds && ::capng_apply(CAPNG_SELECT_BOUNDS) != 0)
    return fail(EPERM, "reduce the capability bounding set");
  if (user.uid != ::geteuid()) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
        ::setresuid(user.uid, user.uid, user.uid) != 0)
      return fail_errno("become the user " + std::to_string(user.uid));
  }
  ::capng_clear(CAPNG_SELECT_ALL);
  if (auto done = apply(false); !done) return done;
    // A process of the same user could attach to it otherwise. A sanitizer attaches to itself.
#if defined(__SANITIZE_ADDRESS__)
  constexpr unsigned long kDumpable = 1;
#else
  constexpr unsigned long kDumpable = 0;
#endif
  if (::prctl(PR_SET_DUMPABLE, kDumpable, 0, 0, 0) != 0) return fail_errno("forbid tracing");
  return {};
}

}  // namespace vrdma::vrdmad
