// Unreliable datagrams (UD) over a network: one message, one packet.
//
// shm/datagram.h sends those of a queue pair, and hands over what is not for a vdevice of the
// fabric on this host.
#pragma once

#include <span>

#include "core/rdma/device.h"
#include "transport/net/connection.h"
#include "transport/network_header.h"

namespace vrdma::transport::net {

// The packet of `request`, a send of `qp`. `psn`: of the sender's own count; receivers do not check
// it.
[[nodiscard]] wire::Packet datagram_of(const rdma::Qp& qp, const rdma::WorkRequest& request,
                                       std::span<const uint8_t> payload, uint32_t psn);

// A packet that came for `qp` along `way`: it goes into the next receive, behind its network
// header. False: it is dropped, and counted.
bool receive_datagram(rdma::Qp& qp, const wire::Packet& packet, const NetworkHeader& way,
                      Counters& counters);

}  // namespace vrdma::transport::net
