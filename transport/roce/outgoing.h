// Packets of RoCE v2 as messages of sendmmsg(2).
//
// Consecutive packets of one burst that are equally long, and one that is shorter behind them, are
// one message with UDP_SEGMENT (udp(7)): the kernel, or the adapter, makes them datagrams. The
// socket is not connected and forbids fragments, so that Linux numbers the IPv4 headers of such
// datagrams from 0 (the identification is part of the ICRC). For an adapter whose hardware numbers
// them otherwise, segmentation can be switched off: then each packet is a message.
//
// Source: IBTA annex A17; net/ipv4/udp_offload.c and ip_output.c of Linux.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "core/verbs/socket_address.h"
#include "transport/net/connection.h"
#include "transport/network_header.h"

namespace vrdma::transport::roce {

class Outgoing {
 public:
  // UDP_MAX_SEGMENTS of the kernel, and what fits into an IPv4 packet with its headers.
  static constexpr uint32_t kMostSegments = 64;
  static constexpr size_t kMostBytes = 65535 - 20 - 8;

  // The messages of `burst`, which stays as it is until they are sent. `way.source` is the address
  // of the socket.
  void fill(const net::Burst& burst, const NetworkHeader& way, uint32_t ifindex, bool segments);
  // The message of one packet.
  void fill(const wire::Packet& packet, const NetworkHeader& way, uint32_t ifindex);
  // Those from `first` on.
  [[nodiscard]] mmsghdr* messages(uint32_t first = 0) { return &messages_[first]; }
  [[nodiscard]] uint32_t count() const { return count_; }
  // Packets of one message.
  [[nodiscard]] uint32_t packets_of(uint32_t message) const { return packets_[message]; }

 private:
  struct Edge {
    uint8_t headers[wire::kMaxHeaders];
    uint8_t trailer[3 + wire::kIcrcBytes];  // padding and ICRC
  };
  static constexpr size_t kControl = 3 * CMSG_SPACE(sizeof(int));

  // The message of `count` packets, whose pieces are those from `index` on, each `segment` bytes
  // long but the last.
  void put_message(uint32_t index, uint32_t count, size_t segment, const NetworkHeader& way);
  void put_packet(const wire::Packet& packet, uint32_t index, uint16_t id,
                  const NetworkHeader& way);
  void put_control(msghdr& message, const NetworkHeader& way, uint16_t segment);

  verbs::SocketAddress to_{{}, 0, 0};
  uint32_t count_ = 0;
  std::array<mmsghdr, net::Burst::kMost> messages_;
  std::array<uint32_t, net::Burst::kMost> packets_;
  std::array<Edge, net::Burst::kMost> edges_;
  std::array<std::array<iovec, 3>, net::Burst::kMost> pieces_;
  struct alignas(cmsghdr) Control {
    std::array<uint8_t, kControl> bytes;
  };
  std::array<Control, net::Burst::kMost> control_;
};

}  // namespace vrdma::transport::roce
