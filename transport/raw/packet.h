// Whole Ethernet frames, by a packet socket (packet(7)) that is bound to the vdevice's netdev.
//
// A frame that is sent goes out by the netdev, and to the vdevice's other raw packet queue pairs
// that have a flow for it, as within an adapter. What the host's own network stack sends is not
// received. Nothing comes before the first flow. Frames that find no receive, or that the netdev
// does not take at this moment, are lost and counted, as on any Ethernet.
//
// Nobody sends in the name of another: a frame whose source address is not the netdev's own is an
// error of its work request (IBV_WC_LOC_QP_OP_ERR), as `spoofchk` of a virtual function does it.
// Adapters drop such frames in silence, which would only hide a mistake.
#pragma once

#include <functional>

#include "transport/message.h"

namespace vrdma::transport {

class PacketPort final : public rdma::FramePort {
 public:
  // `socket` is of type SOCK_RAW, does not block, is bound to `ifindex`, and receives nothing yet.
  // `close` gets the socket in the end: the kernel waits until nobody uses it.
  PacketPort(rdma::Qp& qp, base::EventLoop& loop, base::Fd socket, uint32_t ifindex,
             std::function<void(base::Fd)> close)
      : qp_(qp),
        loop_(loop),
        socket_(std::move(socket)),
        ifindex_(ifindex),
        close_(std::move(close)) {}
  ~PacketPort() override;

  base::Result<void> flows_changed() override;
  void take(const uint8_t* frame, size_t length) override;
  [[nodiscard]] verbs::WcStatus send(const std::vector<uint8_t>& frame);

 private:
  void receive();
  [[nodiscard]] size_t read(uint8_t* room, uint8_t** frame);

  rdma::Qp& qp_;
  base::EventLoop& loop_;
  base::Fd socket_;
  uint32_t ifindex_;
  const std::function<void(base::Fd)> close_;
  base::EventLoop::Watch watch_;
};

class PacketSender final : public MessageSender {
 public:
  PacketSender(rdma::Qp& qp, Lane& lane, PacketPort& port)
      : MessageSender(qp, lane, 0), port_(port) {}
  ~PacketSender() override { abandon(); }

 private:
  [[nodiscard]] bool admit(const rdma::WorkRequest& request) override;
  [[nodiscard]] uint64_t max_length() const override;
  [[nodiscard]] Progress send(const rdma::WorkRequest& request, const Message& message) override;

  PacketPort& port_;
};

}  // namespace vrdma::transport
