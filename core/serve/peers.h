// How many connections a peer may have at a time, and begin within some seconds.
//
// A peer is a host: an IPv4 address, or the first 64 bits of an IPv6 address, since a host may take
// any address below these. The table is bounded: when kMost peers are in it, others are refused
// until one of them has been quiet for a window.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/base/clock.h"

namespace vrdma::serve {

struct PeerLimits {
  unsigned open = 4;    // connections at a time
  unsigned begun = 30;  // connections within `window`
  base::Duration window = std::chrono::seconds(10);
};

class Peers {
 public:
  static constexpr size_t kMost = 4096;
  using Peer = std::string;

  explicit Peers(const PeerLimits& limits) : limits_(limits) {}

  // Of an IPv4 address in an IPv6 one: that of the IPv4 address.
  [[nodiscard]] static Peer of(const sockaddr_storage& address);
  // Whether the peer may have one more connection, which then counts until left().
  [[nodiscard]] bool enter(const Peer& peer, base::TimePoint now);
  void left(const Peer& peer);
  // Its connections.
  [[nodiscard]] unsigned open(const Peer& peer) const;

 private:
  struct Use {
    unsigned open = 0, begun = 0;
    base::TimePoint since;  // the window's begin
  };
  [[nodiscard]] bool is_over(const Use& use, base::TimePoint now) const {
    return now - use.since >= limits_.window;
  }

  const PeerLimits limits_;
  std::map<Peer, Use> uses_;
};

}  // namespace vrdma::serve
