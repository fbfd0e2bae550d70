// An Ethernet frame as far as a router sees it, and what a router may do to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vrdma::cli::bad_wire {

using Frame = std::vector<uint8_t>;

// Where the parts of a frame are. Without VLAN tags, IPv6 extension headers and fragments.
struct Parts {
  size_t ip = 0;        // 0: there is no IP header
  size_t behind = 0;    // the first byte behind the IP header
  size_t end = 0;       // of the IP packet; the rest is padding
  bool is_udp = false;  // with a whole UDP header
  bool is_roce = false;
};
[[nodiscard]] Parts parts_of(const Frame& frame);

// Flips the bit that `random` selects: behind the IP header or, with `right_checksum`, behind the
// UDP header, whose checksum is computed anew. Then only the ICRC tells; it does not cover the
// byte of the BTH that routers may change, so that one is left alone. False: there is no such bit.
[[nodiscard]] bool flip_bit(Frame& frame, const Parts& parts, uint64_t random, bool right_checksum);

// Sets the mark of congestion (CE) if the packet permits marks. False: it does not, or is marked.
// Source: RFC 3168 section 5.
[[nodiscard]] bool mark(Frame& frame, const Parts& parts);

}  // namespace vrdma::cli::bad_wire
