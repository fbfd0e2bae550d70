// The path of an unreliable datagram queue pair: to one vdevice of the fabric, or to a multicast
// group's members. What nobody takes is lost and counted; the sender does not learn.
#pragma once

#include <memory>
#include <vector>

#include "transport/send_queue.h"

namespace vrdma::transport {

class DatagramPath final : public Path {
 public:
  DatagramPath(rdma::Qp& qp, SendQueue& queue) : qp_(qp), queue_(queue) {}
  ~DatagramPath() override { abandon(); }

  [[nodiscard]] Progress execute(rdma::WorkRequest& request) override;
  void abandon() override;

 private:
  using Buffer = std::shared_ptr<std::vector<uint8_t>>;

  [[nodiscard]] Progress collect(rdma::WorkRequest& request);
  void send(const rdma::WorkRequest& request);
  void deliver(rdma::Qp& target, const rdma::WorkRequest& request, const verbs::Gid& destination);

  rdma::Qp& qp_;
  SendQueue& queue_;
  Buffer message_;  // room for the GRH, then the payload
  verbs::Gid source_{};
  bool reading_ = false;  // a reach thread fills message_
  bool ready_ = false;
  bool failed_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::transport
