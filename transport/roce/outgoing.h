// Packets of RoCE v2 as messages of sendmmsg(2).
//
// Consecutive packets to one host that are equally long, and one that is shorter behind them, are
// one message with UDP_SEGMENT (udp(7)), whatever queue pairs they belong to: the kernel, or the
// adapter, makes them datagrams. Headers, trailers and short payloads are copied into one piece.
// The socket is not connected and forbids fragments, so that Linux numbers the IPv4 headers of such
// datagrams from 0 (the identification is part of the ICRC). For an adapter whose hardware numbers
// them otherwise, segmentation can be switched off: then each packet is a message.
//
// Source: IBTA annex A17; net/ipv4/udp_offload.c and ip_output.c of Linux.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/verbs/socket_address.h"
#include "transport/net/connection.h"
#include "transport/network_header.h"

namespace vrdma::transport::roce {

class Outgoing {
 public:
  // UDP_MAX_SEGMENTS of the kernel, and what fits into an IPv4 packet with its headers.
  static constexpr uint32_t kMostSegments = 64;
  static constexpr size_t kMostBytes = 65535 - 20 - 8;

  static constexpr uint32_t kMost = 2 * net::Burst::kMost;  // packets

  Outgoing();
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  // Adds the packets of `burst` from `first` on, as far as there is room, and keeps their bytes.
  // Returns how many. `way.source` is the address of the socket. `segments`: messages may have
  // several packets.
  [[nodiscard]] uint32_t add(const net::Burst& burst, uint32_t first, const NetworkHeader& way,
                             uint32_t ifindex, bool segments);
  // Adds one packet, whose payload stays until it is sent. False: there is no room.
  [[nodiscard]] bool add(const wire::Packet& packet, const NetworkHeader& way, uint32_t ifindex,
                         bool segments) {
    return add(packet, {way, wire::kRocePort, way}, ifindex, segments);
  }
  // Where a packet is sent to, and the addresses that its ICRC covers. They differ if something
  // translates addresses and the port on the way.
  struct Course {
    const NetworkHeader& way;
    uint16_t port;  // of the destination
    const NetworkHeader& seen;
  };
  [[nodiscard]] bool add(const wire::Packet& packet, const Course& course, uint32_t ifindex,
                         bool segments);
  // Drops all, and frees the payloads that it keeps.
  void clear();
  // What is added from now on leaves by a socket of that port.
  void leave_by(uint16_t source_port) { source_port_ = source_port; }

  // Messages from `first` on.
  [[nodiscard]] mmsghdr* messages(uint32_t first = 0) { return &messages_[first]; }
  [[nodiscard]] uint32_t count() const { return count_; }
  // Packets of one message.
  [[nodiscard]] uint32_t packets_of(uint32_t message) const { return packets_[message]; }

 private:
  static constexpr size_t kShort = 64;  // bytes of a payload that is copied
  static constexpr size_t kRoom = wire::kMaxHeaders + kShort + 3 + wire::kIcrcBytes;
  static constexpr size_t kControl = 3 * CMSG_SPACE(sizeof(int));
  struct alignas(cmsghdr) Control {
    std::array<uint8_t, kControl> bytes;
  };

  [[nodiscard]] bool continues(size_t size, const NetworkHeader& way) const;
  void begin_message(size_t size, const NetworkHeader& way, uint16_t port, uint32_t ifindex);
  void put_packet(const wire::Packet& packet, const NetworkHeader& seen);
  void put_bytes(const uint8_t* bytes, size_t size);
  void put_option(int level, int type, const void* value, size_t size);

  uint16_t source_port_ = wire::kRocePort;
  uint32_t count_ = 0, total_ = 0;  // messages, packets
  // The last message: whose packets, of that size, and how many bytes. `open_`: more may follow.
  NetworkHeader way_;
  size_t segment_ = 0, bytes_ = 0;
  bool open_ = false;
  size_t used_ = 0;  // of room_
  uint32_t pieces_used_ = 0;

  std::array<mmsghdr, kMost> messages_;
  std::array<uint32_t, kMost> packets_;
  std::array<Control, kMost> control_;
  std::vector<verbs::SocketAddress> to_;  // of each message
  std::array<iovec, size_t{3} * kMost> pieces_;
  std::array<uint8_t, kMost * kRoom> room_;
  std::vector<rdma::Buffer> kept_;
};

}  // namespace vrdma::transport::roce
