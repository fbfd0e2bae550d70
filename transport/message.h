// What the paths of queue pairs without a peer share: a message is first brought together, then
// given away whole, and it is received whole or not at all.
#pragma once

#include <memory>
#include <vector>

#include "transport/send_queue.h"

namespace vrdma::transport {

using Message = rdma::Buffer;

class MessagePath : public Path {
 public:
  // In front of each message there will be `headroom` bytes.
  MessagePath(rdma::Qp& qp, SendQueue& queue, uint32_t headroom)
      : qp_(qp), queue_(queue), headroom_(headroom) {}

  [[nodiscard]] Progress execute(rdma::WorkRequest& request) final;
  void abandon() final;
  // Nobody takes over what is sent as frames or to QP1.
  [[nodiscard]] bool delivered(const rdma::WorkRequest&, uint32_t) const override { return true; }
  [[nodiscard]] bool written(rdma::WorkRequest&) final { return false; }

 protected:
  // Before anything is read. False: a request that no queue pair of this type has.
  [[nodiscard]] virtual bool admit(const rdma::WorkRequest& request) = 0;
  [[nodiscard]] virtual uint64_t max_length() const = 0;
  // `message` is the request's, headroom included. kDone, or kAgain: to be called again with the
  // same message, until it has gone to all who are to receive it.
  [[nodiscard]] virtual Progress send(const rdma::WorkRequest& request, const Message& message) = 0;
  // The request is done or forgotten.
  virtual void forget() {}

  rdma::Qp& qp_;
  SendQueue& queue_;

 private:
  [[nodiscard]] Progress collect(rdma::WorkRequest& request);

  uint32_t headroom_;
  Message message_;
  bool reading_ = false;  // a reach thread fills message_
  bool ready_ = false;
  bool failed_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

// Puts `message` into the next receive of `target`, which then completes with `entry`, its slot
// filled in. False: there is no receive, or none that it fits into; it is lost. `payer` pays for
// what `target`'s reach does; nullptr: `target`'s vdevice.
[[nodiscard]] bool receive_message(rdma::Qp& target, const Message& message, ipc::RecvEntry entry,
                                   std::shared_ptr<base::CpuMeter> payer = nullptr);

}  // namespace vrdma::transport
