// How a peer numbers its packets: the identification of their IPv4 headers, as the ICRC tells it.
//
// A UDP socket does not see the identification, and of a damaged packet one in 65,536 has an ICRC
// that fits some other. Linux gives 0 to datagrams that may not be fragmented, and counts from 0
// those that it makes of one message (UDP_SEGMENT). A peer that has done so for long enough is held
// to it: 26 of the 32 bits of the ICRC detect errors then. Others (rxe, some adapters) may use any.
//
// Source: ip_select_ident_segs() and __udp_gso_segment() of Linux.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/roce/outgoing.h"

namespace vrdma::transport::roce {

class Numbering {
 public:
  // Packets in a row. A counter of all packets of an adapter passes 64 before.
  static constexpr uint32_t kSure = 256;
  // Damage does not come as often without a good packet between.
  static constexpr uint32_t kGivesUp = 4;

  // Of a packet whose ICRC fits `id`, in the order in which they come. False: it is damaged.
  [[nodiscard]] bool accept(uint16_t id) {
    if (id < Outgoing::kMostSegments) {
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
