// rtnetlink(7): events from all namespaces, queries into any of them, and the way to an address.
//
// Each socket belongs to the namespace of the thread that opened it. It addresses another namespace
// by an nsid, a number that is valid only in the socket's namespace and holds no reference: a
// namespace ends with its last process, descriptor or mount, and RTM_DELNSID reports it.
#pragma once

#include <netlink/netlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "netns/link.h"

namespace vrdma::netns {

struct NlSocketFree {
  void operator()(nl_sock* socket) const;
};
using NlSocket = std::unique_ptr<nl_sock, NlSocketFree>;

// Stands for the socket's own namespace where an nsid is expected.
constexpr int kOwnNetns = -1;

// A socket of rtnetlink in the calling thread's namespace. Queries about routes and neighbours need
// no privilege.
[[nodiscard]] base::Result<base::Fd> make_route_socket();

// Receives multicast messages. Non-blocking.
class RouteEvents {
 public:
  // `groups` are RTNLGRP_*. With `all_netns`, messages come from our own namespace and from each
  // one that has an nsid in it and over whose user namespace we have CAP_NET_BROADCAST.
  [[nodiscard]] static base::Result<RouteEvents> open(const std::vector<int>& groups,
                                                      bool all_netns, int receive_buffer);

  [[nodiscard]] int fd() const;

  // Calls `handle` for each pending message, with the nsid of its origin, up to a fixed number of
  // datagrams, so that a flood does not occupy the caller. False if messages were lost since the
  // last call: the caller must query the state again.
  [[nodiscard]] bool receive(const std::function<void(int nsid, nlmsghdr* message)>& handle);

 private:
  NlSocket socket_;
  std::vector<char> buffer_;
};

// Where a packet goes first: to its destination, or to a gateway.
struct NextHop {
  uint32_t ifindex = 0;  // 0: the destination is an address of the namespace itself
  Address address{};
  // Of the route, where its metrics say so; 0: nothing.
  uint32_t mtu = 0;  // bytes of an IP packet
  uint8_t hop_limit = 0;
  Address source{};  // that the kernel chooses where the asker names none; zeros: it names none
};

// Synchronous requests. They do not block for long, because the kernel answers at once.
class RouteQueries {
 public:
  [[nodiscard]] static base::Result<RouteQueries> open();
  // By a socket that make_route_socket() has made, for queries into its namespace.
  [[nodiscard]] static base::Result<RouteQueries> by(base::Fd socket);

  // The nsid of a namespace in our own. If it has none, assigns one if `assign`, else returns
  // kOwnNetns (equal to NETNSA_NSID_NOT_ASSIGNED).
  [[nodiscard]] base::Result<int> nsid_of(const base::Fd& netns, bool assign);

  // The link by its name, or by its index if `name` is empty. ENODEV: no such link. EINVAL: no
  // namespace has this nsid. Leaves netns_cookie 0. Reads no more than Link::kMostAddresses
  // addresses, because a tenant may have any number of them.
  [[nodiscard]] base::Result<Link> link(int nsid, const std::string& name, uint32_t ifindex);

  // The way of a packet from an address of the socket's namespace (RTM_GETROUTE). `ifindex`: of the
  // netdev of a link-local address. ENETUNREACH, EHOSTUNREACH, EACCES, EINVAL as of sendto(2).
  [[nodiscard]] base::Result<NextHop> next_hop(const Address& from, const Address& to,
                                               uint32_t ifindex);
  // The same for a packet whose source is the kernel's choice.
  [[nodiscard]] base::Result<NextHop> next_hop(const Address& to);
  // Its state among the neighbours of the socket's namespace: NUD_* (rtnetlink(7)), or 0: it is not
  // among them.
  [[nodiscard]] uint16_t neighbour(const NextHop& hop);

 private:
  using Handler = std::function<void(nlmsghdr*)>;
  struct Dump {
    bool interrupted = false;  // it changed while it was read
    bool cut = false;          // the handler got only the first messages
  };
  // Sends a request and passes each message of the answer to `handle`, but at most `most` of them.
  // Errors are the kernel's errno.
  base::Result<Dump> ask(nl_msg* request, const Handler& handle, size_t most = SIZE_MAX);
  base::Result<Dump> ask_once(nl_msg* request, const Handler& handle, size_t most);
  base::Result<NextHop> next_hop(const Address* from, const Address& to, uint32_t ifindex);
  base::Result<void> read_addresses(int nsid, Link* link);
  base::Result<void> open_anew();

  NlSocket socket_;
};

}  // namespace vrdma::netns
