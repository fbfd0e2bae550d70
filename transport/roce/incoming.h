// Packets of RoCE v2 out of the messages of recvmmsg(2).
//
// A message may have several packets of one flow, each as long as the first but the last (UDP_GRO,
// udp(7)). The ICRC of each is verified. Its IPv4 identification is not visible to a UDP socket:
// any is accepted for which the ICRC fits (core/wire/icrc.h), which leaves 16 bits to detect
// errors, in addition to the UDP checksum if the sender computes one. The message's header has the
// identification that fitted, so that a connection can compare it with those of its peer
// (numbering.h). Of IPv6 all 32 bits are verified.
//
// Everything in a packet is a stranger's word. What it does not say of itself, its addresses, is
// the kernel's.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/fd.h"
#include "core/verbs/gid.h"
#include "core/wire/roce.h"
#include "transport/network_header.h"
#include "transport/roce/counters.h"

namespace vrdma::transport::roce {

// A packet whose ICRC is wrong between the addresses that it came with. Valid during the call.
struct Misfit {
  const wire::Packet& packet;
  const NetworkHeader& header;
  const uint8_t* bytes;  // from its BTH to the ICRC
  size_t size;
  uint16_t source_port;

  // Its ICRC is right between these: something has translated its addresses on the way.
  [[nodiscard]] bool fits(const verbs::Gid& source, const verbs::Gid& destination) const;
};

// The room for one call of recvmmsg(2); the endpoints of a worker share it.
class Incoming {
 public:
  static constexpr unsigned kMessages = 8;
  static constexpr size_t kMessageBytes = 65536;

  Incoming();

  // Receives from a socket at `local`. Returns how many messages came, or a negative errno.
  [[nodiscard]] int receive(const base::Fd& socket);
  // Calls `on_packet(packet, header)` for each packet of the last call, in order, and
  // `explains(misfit)` for one with a wrong ICRC, which counts as such if that is false.
  template <class F, class G>
  void each(const verbs::Gid& local, IncomingCounters& counters, F on_packet, G explains) {
    for (int i = 0; i < received_; ++i) {
      Message message = open(static_cast<size_t>(i), local);
      for (wire::Packet packet; next(message, counters, &packet);) {
        if (message.fits)
          on_packet(packet, message.header);
        else if (!explains(Misfit{packet, message.header, message.packet_bytes, message.packet_size,
                                  message.source_port}))
          ++counters.icrc_error;
      }
    }
  }
  // Of the last call.
  [[nodiscard]] uint64_t bytes() const;

 private:
  struct Message {
    const uint8_t* bytes = nullptr;
    size_t left = 0, segment = 0;
    uint16_t source_port = 0;
    uint16_t index = 0;  // of the next packet
    NetworkHeader header;
    // Of the packet that next() found.
    const uint8_t* packet_bytes = nullptr;
    size_t packet_size = 0;
    bool fits = false;  // its ICRC is right
  };
  [[nodiscard]] Message open(size_t index, const verbs::Gid& local) const;
  // False: there is no other packet in it.
  [[nodiscard]] static bool next(Message& message, IncomingCounters& counters,
                                 wire::Packet* packet);

  struct alignas(cmsghdr) Control {
    std::array<uint8_t, 3 * CMSG_SPACE(sizeof(int))> bytes;
  };
  int received_ = 0;
  std::vector<uint8_t> room_;
  std::array<mmsghdr, kMessages> messages_{};
  std::array<iovec, kMessages> pieces_{};
  std::array<sockaddr_in6, kMessages> from_{};  // or sockaddr_in
  std::array<Control, kMessages> control_{};
};

// The IPv4 identification with which the ICRC of a packet is right, 0 of IPv6; empty: there is
// none. `bytes`: from its BTH to the ICRC, at least 16. `likely_id` is tried before any other,
// which takes longer.
[[nodiscard]] std::optional<uint16_t> check_icrc(const uint8_t* bytes, size_t size,
                                                 const verbs::Gid& source,
                                                 const verbs::Gid& destination,
                                                 uint16_t source_port, uint16_t likely_id);

}  // namespace vrdma::transport::roce
