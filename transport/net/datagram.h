// Unreliable datagrams (UD) over a network: one message, one packet.
//
// Whether a destination is in the fabric of this host or beyond the network is for the sender's
// maker to know: shm/datagram.h serves the former.
#pragma once

#include "transport/message.h"
#include "transport/net/connection.h"
#include "transport/network_header.h"

namespace vrdma::transport::net {

class DatagramPort {
 public:
  virtual ~DatagramPort() = default;
  // Sends one packet along `way`, whose source is a GID of the queue pair's device. What gets lost
  // gets lost.
  virtual void send(const wire::Packet& packet, const NetworkHeader& way) = 0;
};

// The packet of `request`, a send of `qp`; `message` is its payload. `psn`: the next of the queue
// pair.
[[nodiscard]] wire::Packet datagram_of(const rdma::Qp& qp, const rdma::WorkRequest& request,
                                       const Message& message, uint32_t psn);
// Where `request` goes, from `source`.
[[nodiscard]] NetworkHeader way_of(const rdma::WorkRequest& request, const verbs::Gid& source);

// A packet that came for `qp` along `way`: it goes into the next receive, behind its network
// header. False: it is dropped, and counted.
bool receive_datagram(rdma::Qp& qp, const wire::Packet& packet, const NetworkHeader& way,
                      Counters& counters);

class NetDatagramSender final : public MessageSender {
 public:
  NetDatagramSender(rdma::Qp& qp, Lane& lane, std::unique_ptr<DatagramPort> port)
      : MessageSender(qp, lane, 0), port_(std::move(port)), psn_(qp.attributes.sq_psn) {}
  ~NetDatagramSender() override { abandon(); }

 private:
  [[nodiscard]] bool admit(const rdma::WorkRequest& request) override;
  [[nodiscard]] uint64_t max_length() const override;
  [[nodiscard]] Progress send(const rdma::WorkRequest& request, const Message& message) override;

  std::unique_ptr<DatagramPort> port_;
  uint32_t psn_;
};

}  // namespace vrdma::transport::net
