// rtnetlink(7) as the monitor needs it: events of all namespaces, and queries into any of them.
//
// All sockets live in the namespace of the thread that opened them. They name another one by its
// nsid, a number that is valid in theirs alone, and which holds no reference: a namespace goes
// when its last process, file or mount does, and RTM_DELNSID tells.
#pragma once

#include <netlink/netlink.h>

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

// The socket's own namespace, in the place of an nsid.
constexpr int kOwnNetns = -1;

// Multicast messages. Non-blocking.
class RouteEvents {
 public:
  // `groups` are RTNLGRP_*. With `all_netns`, messages come from each namespace that has an nsid
  // in ours and over whose user namespace we have CAP_NET_BROADCAST, beside our own.
  [[nodiscard]] static base::Result<RouteEvents> open(const std::vector<int>& groups,
                                                      bool all_netns, int receive_buffer);

  [[nodiscard]] int fd() const;

  // Calls `handle` for each message there is, with the nsid it comes from; at most a fixed number
  // of datagrams a call, so that a flood does not keep the caller. False if messages were lost
  // since the last call: what was known must be asked for again.
  [[nodiscard]] bool receive(const std::function<void(int nsid, nlmsghdr* message)>& handle);

 private:
  NlSocket socket_;
  std::vector<char> buffer_;
};

// Requests, each answered before the call returns: the kernel answers at once and never makes one
// wait for something outside of it.
class RouteQueries {
 public:
  [[nodiscard]] static base::Result<RouteQueries> open();

  // The nsid of a namespace in ours; one is given to it if it has none and `assign`, else
  // kOwnNetns comes back (NETNSA_NSID_NOT_ASSIGNED, the same number).
  [[nodiscard]] base::Result<int> nsid_of(const base::Fd& netns, bool assign);

  // The link by its name, or by its index if `name` is empty. ENODEV: there is none. EINVAL: no
  // namespace has this nsid. netns_cookie is left 0.
  [[nodiscard]] base::Result<Link> link(int nsid, const std::string& name, uint32_t ifindex);

 private:
  using Handler = std::function<void(nlmsghdr*)>;
  // Sends, and hands each message of the answer to `handle`. The error is the kernel's errno.
  base::Result<void> ask(nl_msg* request, const Handler& handle);
  base::Result<void> ask_once(nl_msg* request, const Handler& handle, bool* interrupted);
  base::Result<void> addresses(int nsid, uint32_t ifindex, std::vector<Address>* addresses);

  NlSocket socket_;
};

}  // namespace vrdma::netns
