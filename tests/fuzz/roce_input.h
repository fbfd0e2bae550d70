// Packets that a peer of a queue pair could send, made of a fuzz target's input.
#pragma once

#include "tests/fuzz/input.h"
#include "tests/unit/transport/net/simulation.h"

namespace vrdma::fuzz {

// Numbers near those that are expected come more often than chance would have it.
inline wire::Packet take_packet(Input& input, uint32_t near, uint32_t mtu) {
  static const std::vector<uint8_t> payload(1u << 16, 0xa5);
  wire::Packet packet;
  packet.operation = static_cast<wire::Operation>(input.take() & 31);
  const auto choice = input.take();
  const auto ahead = static_cast<int8_t>(input.take());
  packet.psn = wire::psn_add(
      near, (choice & 1) != 0 ? input.take<uint32_t>() : static_cast<uint32_t>(ahead / 16));
  packet.ack_request = (choice & 2) != 0;
  packet.payload_length = (choice & 4) != 0   ? input.take<uint16_t>() % 5000
                          : (choice & 8) != 0 ? mtu
                                              : input.take() % 16;
  packet.va = transport::net::kMemoryAt +
              ((choice & 16) != 0 ? input.take<uint64_t>() : input.take<uint16_t>());
  packet.rkey = (choice & 32) != 0 ? input.take<uint32_t>() : transport::net::kKey;
  packet.dma_length =
      (choice & 64) != 0 ? input.take<uint32_t>() : packet.payload_length + (choice >> 7) * mtu;
  packet.syndrome = input.take();
  packet.swap_add = input.take();
  packet.compare = input.take();
  if (wire::info(packet.operation).payload == wire::OperationInfo::Payload::kNone)
    packet.payload_length = 0;
  packet.payload = payload.data();
  return packet;
}

}  // namespace vrdma::fuzz
