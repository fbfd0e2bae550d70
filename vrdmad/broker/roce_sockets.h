// The sockets of RoCE v2 (UDP port 4791) at one address of a network namespace.
//
// Two sockets share the address and the port (SO_REUSEPORT). A filter gives packets to queue pair 1
// to the first, which is control's, and all others to the second, which is that of the worker that
// serves the address. The first takes only what can be a MAD by its length, operation and Q_Key.
// Both send only from this address. They are not connected, and do not let packets be fragmented:
// then the identification of an IPv4 header is 0, or the number of a segment (UDP_SEGMENT), so that
// the sender can compute the invariant CRC. What they send to a multicast group leaves by the
// netdev, and no socket of this namespace receives it.
//
// Others send from ports of verbs::few_source_port(), so that routers spread flows. They share
// their ports with programs that permit it (SO_REUSEADDR), and receive nothing: a filter that
// cannot be taken away drops it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/verbs/gid.h"

namespace vrdma::vrdmad {

struct RoceSockets {
  base::Fd gsi, data;
  base::Fd routes;  // netns::make_route_socket(): tells control where packets go
};

// In the network namespace of the calling thread. `ifindex`: of the netdev of the address.
// Receiving, the type of service and the time to live come with a packet, and several packets of
// one flow at once on `data` (UDP_GRO). EADDRINUSE, EADDRNOTAVAIL.
[[nodiscard]] base::Result<RoceSockets> make_roce_sockets(const verbs::Gid& address,
                                                          uint32_t ifindex);

// The first `count` of the sockets that only send, at most verbs::kMostSourcePorts; invalid where
// another program has the port. EADDRNOTAVAIL.
[[nodiscard]] base::Result<std::vector<base::Fd>> make_source_sockets(const verbs::Gid& address,
                                                                      uint32_t ifindex,
                                                                      size_t count);

// A socket that receives what comes for the multicast group by that netdev, which is a member of
// the group (IGMP, MLD) as long as the socket is open. ENODEV, EADDRINUSE, ENOBUFS.
[[nodiscard]] base::Result<base::Fd> make_group_socket(const verbs::Gid& group, uint32_t ifindex);

}  // namespace vrdma::vrdmad
