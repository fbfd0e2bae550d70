// The sender of an unreliable datagram queue pair: to one vdevice of the fabric, or to a multicast
// group's members. What nobody takes is lost and counted; the sender does not learn.
//
// The sender pays for each copy. A large group is served over several turns: members that leave or
// join meanwhile may get the message or not, and when one leaves, another may miss it. A receiver
// whose Q_Key is another takes nothing, whether the message was sent to it or to a group
// (IBTA 10.2.5).
#pragma once

#include <functional>
#include <span>

#include "transport/message.h"
#include "transport/network_header.h"

namespace vrdma::transport {

class DatagramSender final : public MessageSender {
 public:
  // Sends a datagram to a vdevice that the fabric does not have on this host, or to the members of
  // a group on other hosts. False: nothing leads there.
  using Beyond = std::function<bool(const rdma::Qp& qp, const rdma::WorkRequest& request,
                                    const NetworkHeader& way, std::span<const uint8_t> payload)>;

  DatagramSender(rdma::Qp& qp, Lane& lane, Beyond beyond = {})
      : MessageSender(qp, lane, verbs::kGrhBytes), beyond_(std::move(beyond)) {}
  ~DatagramSender() override { abandon(); }

 private:
  [[nodiscard]] std::optional<verbs::WcStatus> after_crash(
      rdma::WorkRequest& request, const SendRing::Interrupted& interrupted) override;
  [[nodiscard]] bool admit(const rdma::WorkRequest& request) override;
  [[nodiscard]] uint64_t max_length() const override;
  [[nodiscard]] Progress send(const rdma::WorkRequest& request, const Message& message) override;
  void forget() override { served_ = 0; }
  // False: nothing leads there.
  bool send_beyond(const rdma::WorkRequest& request, const NetworkHeader& header,
                   const Message& message);
  // False: it was not received.
  bool deliver(rdma::Qp& target, const rdma::WorkRequest& request, const NetworkHeader& header,
               const Message& message);

  const Beyond beyond_;
  verbs::Gid source_{};
  size_t served_ = 0;  // of the group's members
};

}  // namespace vrdma::transport
