// What is counted of a vdevice on the network. Of standard layout, because pages that processes
// share contain it.
#pragma once

#include "core/base/counter.h"
#include "transport/net/connection.h"

namespace vrdma::transport::roce {

// Packets that no queue pair has seen, by reason.
struct IncomingCounters {
  base::Counter icrc_error;  // rx_icrc_encapsulated of mlx5
  base::Counter malformed;   // no packet of RoCE v2
};

struct EndpointCounters {
  IncomingCounters incoming;
  base::Counter sent_packets, received_packets;
  base::Counter send_errors;  // packets that the kernel did not take: no route, or forbidden
};

struct Counters {
  net::Counters protocol;
  EndpointCounters endpoint;
  base::Counter unknown_qp;    // packets to a queue pair that has no peer on the network
  base::Counter wrong_source;  // from another host than its peer, or in the name of this host
  base::Counter no_peer;       // datagrams from an address that is no peer of the fabric
};

}  // namespace vrdma::transport::roce
