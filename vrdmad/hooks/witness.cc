#include "vrdmad/hooks/witness.h"

#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "core/base/netns_cookie.h"
#include "core/base/out_of_files.h"
#include "core/rdma/peer.h"

namespace vrdma::vrdmad {

using base::fail;
using base::Fd;
using base::pass;
using base::Result;

namespace {

bool is_same_file(const Fd& one, const Fd& other) {
  struct stat a {
  }, b{};
  return ::fstat(one.get(), &a) == 0 && ::fstat(other.get(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

Result<uid_t> owner_of(const Fd& netns) {
  const Fd user(::ioctl(netns.get(), NS_GET_USERNS));
  uid_t uid = 0;
  if (!user.valid() && base::out_of_files(errno))
    return fail(errno, "vrdmad has too many open files to look at the network namespace");
  if (!user.valid() || ::ioctl(user.get(), NS_GET_OWNER_UID, &uid) != 0)
    return fail(EPERM,
                "the owner of the network namespace is unknown: it is outside of vrdmad's "
                "user namespace");
  return uid;
}

}  // namespace

Result<Witness> witness(Broker& broker, const Fd& netns, const Fd& pidfd) {
  const auto ended = fail(ESRCH,
                          "the container's first process has ended, or vrdmad cannot see "
                          "it: start the container again");
  Witness seen;
  const auto pid = rdma::pid_of(pidfd);
  if (!pid && base::out_of_files(pid.error().code()))
    return fail(pid.error().code(),
                "vrdmad has too many open files to look at the container's first process");
  if (!pid || *pid == 0) return ended;
  seen.init.pid = static_cast<uint32_t>(*pid);
  const auto start_time = rdma::start_time_of(*pid);
  if (!start_time && start_time.error().code() != ESRCH) return pass(start_time.error());
  auto found = broker.netns("pid:" + std::to_string(seen.init.pid));
  if (!found && !rdma::is_alive(pidfd)) return ended;
  if (!found) return pass(std::move(found.error()));
  // While the process lives, its number means no other.
  if (!start_time || !rdma::is_alive(pidfd)) return ended;
  seen.init.start_time = *start_time;
  if (!is_same_file(found->fd, netns))
    return fail(EPERM,
                "the network namespace is not that of the container's first process: a hook "
                "must pass its own container's");
  auto owner = owner_of(found->fd);
  if (!owner) return pass(std::move(owner.error()));
  seen.owner = *owner;
  // The daemon may have a network namespace of its own.
  const auto own = base::own_netns_cookie();
  const auto first = broker.netns("pid:1");
  seen.host = (own && *own == found->cookie) || (first && first->cookie == found->cookie);
  seen.netns = std::move(*found);
  return seen;
}

}  // namespace vrdma::vrdmad
