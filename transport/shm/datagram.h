// The path of an unreliable datagram queue pair: to one vdevice of the fabric, or to a multicast
// group's members. What nobody takes is lost and counted; the sender does not learn.
#pragma once

#include "transport/message.h"
#include "transport/network_header.h"

namespace vrdma::transport {

class DatagramPath final : public MessagePath {
 public:
  DatagramPath(rdma::Qp& qp, SendQueue& queue) : MessagePath(qp, queue, verbs::kGrhBytes) {}
  ~DatagramPath() override { abandon(); }
  [[nodiscard]] bool delivered(const rdma::WorkRequest& request, uint32_t index) const override;

 private:
  [[nodiscard]] bool admit(const rdma::WorkRequest& request) override;
  [[nodiscard]] uint64_t max_length() const override;
  [[nodiscard]] verbs::WcStatus send(const rdma::WorkRequest& request,
                                     const Message& message) override;
  void deliver(rdma::Qp& target, const rdma::WorkRequest& request, const NetworkHeader& header,
               const Message& message);

  verbs::Gid source_{};
};

}  // namespace vrdma::transport
