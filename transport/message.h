// What the senders of queue pairs without a peer share: a message is first brought together, then
// given away whole.
#pragma once

#include <memory>
#include <vector>

#include "transport/serial_sender.h"

namespace vrdma::transport {

using Message = rdma::Buffer;

class MessageSender : public SerialSender {
 public:
  // In front of each message there will be `headroom` bytes.
  MessageSender(rdma::Qp& qp, Lane& lane, uint32_t headroom)
      : SerialSender(qp, lane), headroom_(headroom) {}

 protected:
  [[nodiscard]] Progress execute(rdma::WorkRequest& request) final;
  void abandon() final;
  // Before anything is read. False: a request that no queue pair of this type has.
  [[nodiscard]] virtual bool admit(const rdma::WorkRequest& request) = 0;
  [[nodiscard]] virtual uint64_t max_length() const = 0;
  // `message` is the request's, headroom included. kDone, or kAgain: call again with the same
  // message, until all members of the group have received it.
  [[nodiscard]] virtual Progress send(const rdma::WorkRequest& request, const Message& message) = 0;
  // The request is done or forgotten.
  virtual void forget() {}

 private:
  [[nodiscard]] Progress collect(rdma::WorkRequest& request);

  uint32_t headroom_;
  Message message_;
  bool reading_ = false;  // a reach thread fills message_
  bool ready_ = false;
  bool failed_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::transport
