// What a RoCE v2 receiver finds in front of the payload of a datagram: kGrhBytes with the network
// header of its packet. Source: annex A17.4.5.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/verbs/gid.h"

namespace vrdma::transport {

struct NetworkHeader {
  verbs::Gid source, destination;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;  // 0: 64
  uint32_t flow_label = 0;
  uint16_t ipv4_id = 0;  // of a packet that came: with which its ICRC is right

  // The kind of header, which a completion must tell (annex A17.4.5.1). ibv_wc has no field for
  // that; programs (UCX) look for it where mlx5 puts it, in `sl`, which has no meaning of its own
  // with RoCE: bit 3 for UDP, then the kind.
  [[nodiscard]] uint8_t kind() const;
  // In front of `payload` bytes.
  void write(uint8_t* out, size_t payload) const;
};

}  // namespace vrdma::transport
