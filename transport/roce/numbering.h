// How a peer numbers its packets: the identification of their IPv4 headers, as the ICRC tells it.
//
// A UDP socket does not see the identification, and of a damaged packet one in 65,536 has an ICRC
// that fits some other. Linux gives 0 to datagrams that may not be fragmented, and counts from 0
// those that it makes of one message (UDP_SEGMENT). A peer that has done so for long enough is held
// to it: 26 of the 32 bits of the ICRC detect errors then. Others (rxe, some adapters) may use any.
//
// Any host can send packets in the name of the peer. Only those count that the connection expects,
// whose sequence number such a host must guess: otherwise it could keep out all that a peer sends
// which numbers in another way.
//
// Source: ip_select_ident_segs() and __udp_gso_segment() of Linux.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/roce/outgoing.h"

namespace vrdma::transport::roce {

class Numbering {
 public:
  // Expected packets in a row. A counter of all packets of an adapter passes 64 before.
  static constexpr uint32_t kSure = 256;
  // Damage does not come as often without a good packet between.
  static constexpr uint32_t kGivesUp = 4;

  // Of a packet whose ICRC fits `id`, in the order in which they come. `expected`: the connection
  // waits for its sequence number. False: it is damaged.
  [[nodiscard]] bool accept(uint16_t id, bool expected) {
    const bool from_zero = id < Outgoing::kMostSegments;
    if (!expected) return from_zero || from_zero_ < kSure;
    if (from_zero) {
      strange_ = 0;
      from_zero_ = std::min(from_zero_ + 1, kSure);
      return true;
    }
    if (from_zero_ == kSure && ++strange_ < kGivesUp) return false;
    from_zero_ = strange_ = 0;
    return true;
  }

 private:
  uint32_t from_zero_ = 0, strange_ = 0;  // in a row
};

}  // namespace vrdma::transport::roce
