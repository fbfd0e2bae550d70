#include "vrdmad/privileges.h"

#include <cap-ng.h>
#include <sys/prctl.h>

#include <array>

namespace vrdma::vrdmad {

namespace {

// Not listed: CAP_SYS_RESOURCE, which only main.cc needs, before this, to raise RLIMIT_NOFILE. The
// reader of the unit file relies on these comments, so each states a purpose.
constexpr std::array kNeeded{
    // setns(2) into a vdevice's network namespace, to create sockets there: netns/netns.cc
    unsigned{CAP_SYS_ADMIN},
    // /proc/PID/mem, /proc/PID/ns/net and descriptors of processes of other users:
    // core/rdma/process.cc, core/rdma/reach.cc, netns/netns.cc
    unsigned{CAP_SYS_PTRACE},
    // to open the same for writing, which their mode permits only to their owner, and
    // /dev/userfaultfd if a host gives it to a group: core/rdma/process.cc,
    // vrdmad/worker/session_hello.cc
    unsigned{CAP_DAC_OVERRIDE},
    // the namespace of a socket (SIOCGSKNS), addresses of other namespaces (IFA_TARGET_NETNSID),
    // large receive buffers for them: netns/netns.cc, netns/route_socket.cc
    unsigned{CAP_NET_ADMIN},
    // links of all namespaces by one socket (NETLINK_LISTEN_ALL_NSID): netns/route_socket.cc
    unsigned{CAP_NET_BROADCAST},
    // packet sockets for raw packet queue pairs: vrdmad/worker/session_raw.cc
    unsigned{CAP_NET_RAW},
};

}  // namespace

base::Result<std::vector<std::string>> drop_privileges() {
  std::vector<std::string> missing;
  ::capng_get_caps_process();
  std::array<bool, kNeeded.size()> held{};
  for (size_t i = 0; i < kNeeded.size(); ++i) {
    held[i] = ::capng_have_capability(CAPNG_PERMITTED, kNeeded[i]) != 0;
    if (!held[i]) missing.emplace_back(::capng_capability_to_name(kNeeded[i]));
  }
  // Without CAP_SETPCAP the bounding set cannot be reduced; no-new-privileges suffices then.
  const bool bounds = ::capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) != 0;
  ::capng_clear(CAPNG_SELECT_ALL);
  for (size_t i = 0; i < kNeeded.size(); ++i)
    if (held[i])
      ::capng_update(
          CAPNG_ADD,
          static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
          kNeeded[i]);
  if (const int failed = ::capng_apply(bounds ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS); failed != 0)
    return base::fail(EPERM, "drop capabilities: libcap-ng returns " + std::to_string(failed));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return base::fail_errno("set no-new-privs");
  return missing;
}

}  // namespace vrdma::vrdmad
