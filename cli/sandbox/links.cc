#include "cli/sandbox/links.h"

#include <fcntl.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/link/bridge.h>
#include <netlink/route/link/veth.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

#include "core/base/fd.h"

namespace vrdma::cli::sandbox {

namespace {

using base::Fd;
using base::Result;

constexpr unsigned kMtu = 4200;  // an MTU of RDMA of 4096, and its headers
const char* const kBridge = "wire";

Result<Fd> own_netns() {
  Fd netns(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!netns.valid()) return base::fail_errno("open /proc/self/ns/net");
  return netns;
}

// This process is in another network namespace as long as the object lives.
class Visit {
 public:
  static Result<std::unique_ptr<Visit>> enter(const std::string& path) {
    auto home = own_netns();
    if (!home) return base::pass(std::move(home).error());
    const Fd netns(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!netns.valid() || ::setns(netns.get(), CLONE_NEWNET) != 0)
      return base::fail_errno("enter " + path);
    return std::unique_ptr<Visit>(new Visit(std::move(*home)));
  }
  ~Visit() { (void)::setns(home_.get(), CLONE_NEWNET); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  [[nodiscard]] const Fd& home() const { return home_; }

 private:
  explicit Visit(Fd home) : home_(std::move(home)) {}
  const Fd home_;
};

struct Free {
  void operator()(nl_sock* socket) const { ::nl_socket_free(socket); }
  void operator()(rtnl_link* link) const { ::rtnl_link_put(link); }
  void operator()(rtnl_addr* address) const { ::rtnl_addr_put(address); }
  void operator()(nl_addr* address) const { ::nl_addr_put(address); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// libnl has numbers of its own.
int errno_of(int nl_error) {
  switch (-nl_error) {
    case NLE_PERM:
    case NLE_NOACCESS:
      return EPERM;
    case NLE_OPNOTSUPP:
      return EOPNOTSUPP;
    case NLE_EXIST:
      return EEXIST;
    default:
      return EIO;
  }
}
Result<void> checked(int nl_error, const std::string& what) {
  if (nl_error >= 0) return {};
  return base::fail(errno_of(nl_error), what + ": " + ::nl_geterror(nl_error));
}

Result<Owned<nl_sock>> connect_to_kernel() {
  Owned<nl_sock> socket(::nl_socket_alloc());
  if (socket == nullptr) return base::fail(ENOMEM, "no memory for a netlink socket");
  if (auto done = checked(::nl_connect(socket.get(), NETLINK_ROUTE), "connect to rtnetlink"); !done)
    return base::pass(std::move(done).error());
  return socket;
}

Result<void> set_up(const std::string& name) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (!socket.valid() || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0)
    return base::fail_errno("look at " + name);
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0)
    return base::fail_errno("set " + name + " up");
  return {};
}

// A veth pair: `name` in this process's namespace, `peer` in `other`.
Result<void> add_veth(nl_sock* socket, const std::string& name, const std::string& peer,
                      const Fd& other) {
  const Owned<rtnl_link> link(::rtnl_link_veth_alloc());
  if (link == nullptr) return base::fail(ENOMEM, "no memory for a veth pair");
  ::rtnl_link_set_name(link.get(), name.c_str());
  ::rtnl_link_set_mtu(link.get(), kMtu);
  const Owned<rtnl_link> end(::rtnl_link_veth_get_peer(link.get()));  // a reference of its own
  ::rtnl_link_set_name(end.get(), peer.c_str());
  ::rtnl_link_set_mtu(end.get(), kMtu);
  ::rtnl_link_set_ns_fd(end.get(), other.get());
  return checked(::rtnl_link_add(socket, link.get(), NLM_F_CREATE | NLM_F_EXCL), "make " + name);
}

Result<void> add_address(nl_sock* socket, const std::string& name, const std::string& text) {
  nl_addr* parsed = nullptr;
  if (auto done = checked(::nl_addr_parse(text.c_str(), AF_UNSPEC, &parsed), text); !done)
    return done;
  const Owned<nl_addr> local(parsed);
  const Owned<rtnl_addr> address(::rtnl_addr_alloc());
  ::rtnl_addr_set_ifindex(address.get(), static_cast<int>(::if_nametoindex(name.c_str())));
  ::rtnl_addr_set_local(address.get(), local.get());
  // It is nobody else's: no need to find out first.
  if (::nl_addr_get_family(local.get()) == AF_INET6)
    ::rtnl_addr_set_flags(address.get(), IFA_F_NODAD);
  return checked(::rtnl_addr_add(socket, address.get(), 0), "give " + name + " " + text);
}

Result<void> bring_up(const Netdev& netdev, unsigned index) {
  auto visit = Visit::enter(netdev.netns);
  if (!visit) return base::pass(std::move(visit).error());
  auto socket = connect_to_kernel();
  if (!socket) return base::pass(std::move(socket).error());
  if (auto done = add_address(socket->get(), netdev.name, address_of(index) + "/24"); !done)
    return done;
  if (auto done = set_up(netdev.name); !done) return done;
  (void)add_address(socket->get(), netdev.name, "fd00::" + std::to_string(index + 1) + "/64");
  return {};
}

Result<void> make_veth(const Netdev& netdev, const std::string& peer,
                       const std::string* peer_netns) {
  auto visit = Visit::enter(netdev.netns);
  if (!visit) return base::pass(std::move(visit).error());
  auto socket = connect_to_kernel();
  if (!socket) return base::pass(std::move(socket).error());
  if (peer_netns == nullptr) return add_veth(socket->get(), netdev.name, peer, (*visit)->home());
  const Fd other(::open(peer_netns->c_str(), O_RDONLY | O_CLOEXEC));
  if (!other.valid()) return base::fail_errno("open " + *peer_netns);
  return add_veth(socket->get(), netdev.name, peer, other);
}

// In this process's namespace. 0: the kernel has no bridges.
int make_bridge(nl_sock* socket) {
  const Owned<rtnl_link> bridge(::rtnl_link_bridge_alloc());
  if (bridge == nullptr) return 0;
  ::rtnl_link_set_name(bridge.get(), kBridge);
  if (::rtnl_link_add(socket, bridge.get(), NLM_F_CREATE | NLM_F_EXCL) < 0 || !set_up(kBridge))
    return 0;
  return static_cast<int>(::if_nametoindex(kBridge));
}

Result<void> make_star(const std::vector<Netdev>& netdevs) {
  auto socket = connect_to_kernel();
  if (!socket) return base::pass(std::move(socket).error());
  const int bridge = make_bridge(socket->get());
  for (size_t i = 0; i < netdevs.size(); ++i) {
    const std::string end = kBridge + std::to_string(i);
    if (auto done = make_veth(netdevs[i], end, nullptr); !done) return done;
    if (auto done = set_up(end); !done) return done;
    const auto index = static_cast<int>(::if_nametoindex(end.c_str()));
    if (bridge != 0)
      if (auto done = checked(::rtnl_link_enslave_ifindex(socket->get(), bridge, index),
                              "put " + end + " into the bridge");
          !done)
        return done;
  }
  return {};
}

}  // namespace

std::string address_of(unsigned index) { return "10.0.0." + std::to_string(index + 1); }

Result<void> make_netns(const std::string& path) {
  auto home = own_netns();
  if (!home) return base::pass(std::move(home).error());
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
  if (!file.valid()) return base::fail_errno("make " + path);
  if (::unshare(CLONE_NEWNET) != 0) return base::fail_errno("make a network namespace");
  auto done = set_up("lo");
  if (::mount("/proc/self/ns/net", path.c_str(), nullptr, MS_BIND, nullptr) != 0)
    done = base::fail_errno("mount a network namespace on " + path);
  if (::setns(home->get(), CLONE_NEWNET) != 0) return base::fail_errno("leave a network namespace");
  return done;
}

Result<void> make_netdevs(const std::vector<Netdev>& netdevs) {
  return netdevs.size() == 2 ? make_veth(netdevs[0], netdevs[1].name, &netdevs[1].netns)
                             : make_star(netdevs);
}

Result<void> set_up_netdevs(const std::vector<Netdev>& netdevs) {
  for (size_t i = 0; i < netdevs.size(); ++i)
    if (auto done = bring_up(netdevs[i], static_cast<unsigned>(i)); !done) return done;
  return {};
}

}  // namespace vrdma::cli::sandbox
