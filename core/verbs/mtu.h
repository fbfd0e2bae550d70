// The path MTU of RoCE: payload bytes of a packet (IBTA 9.7.2), a power of two from 256 to 4096.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vrdma::verbs {

// The largest one that fits into packets of `netdev_mtu` bytes, as iboe_get_mtu() of the kernel's
// include/rdma/ib_addr.h counts: GRH, UDP, BTH, the largest extended headers and the ICRC.
constexpr uint32_t roce_mtu(uint32_t netdev_mtu) {
  constexpr uint32_t kHeaders = 40 + 8 + 12 + 4 + 28 + 4;
  uint32_t fits = 256;
  while (fits < 4096 && fits * 2 + kHeaders <= netdev_mtu) fits *= 2;
  return fits;
}

// Of a code, as ibv_mtu: 1 = 256 .. 5 = 4096.
constexpr uint32_t mtu_bytes(uint32_t code) { return 128u << std::clamp(code, 1u, 5u); }
constexpr uint8_t mtu_code(uint32_t bytes) {
  uint8_t code = 1;
  while (code < 5 && mtu_bytes(code + 1u) <= bytes) ++code;
  return code;
}

}  // namespace vrdma::verbs
