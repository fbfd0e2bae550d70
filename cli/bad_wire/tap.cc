#include "cli/bad_wire/tap.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace vrdma::cli::bad_wire {

namespace {

using base::Fd;
using base::Result;

constexpr int kQueue = 10000;  // packets that the kernel keeps until they are read

Result<Fd> make(const std::string& name, unsigned mtu) {
  if (name.empty() || name.size() >= IFNAMSIZ)
    return base::fail(EINVAL, "'" + name + "' is no name of an interface: it has 1 to 15 letters");
  Fd tap(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap.valid())
    return base::fail(errno, std::string("cannot open /dev/net/tun (") + ::strerror(errno) +
                                 "): load the module tun, or give the container that device");
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return base::fail_errno("make tap " + name);
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  request.ifr_mtu = static_cast<int>(mtu);
  if (::ioctl(socket.get(), SIOCSIFMTU, &request) != 0)
    return base::fail_errno("set the MTU of " + name + " to " + std::to_string(mtu));
  // Only root of the host may; for others the kernel's thousand must do.
  request.ifr_qlen = kQueue;
  (void)::ioctl(socket.get(), SIOCSIFTXQLEN, &request);
  return tap;
}

}  // namespace

Result<Fd> make_tap(const std::string& netns, const std::string& name, unsigned mtu) {
  const Fd home(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  const Fd there(::open(netns.c_str(), O_RDONLY | O_CLOEXEC));
  if (!home.valid()) return base::fail_errno("open /proc/self/ns/net");
  if (!there.valid() || ::setns(there.get(), CLONE_NEWNET) != 0)
    return base::fail_errno("enter network namespace " + netns);
  auto tap = make(name, mtu);
  if (::setns(home.get(), CLONE_NEWNET) != 0) return base::fail_errno("leave " + netns);
  return tap;
}

}  // namespace vrdma::cli::bad_wire
