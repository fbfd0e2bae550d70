// The node GUID of a vdevice: a unique EUI-64.
//
// Random and locally administered (bit 0x02 of the first byte is set, the group bit 0x01 is clear;
// IEEE 802c), so that it equals no adapter's GUID. Not derived from the MAC, because two vdevices
// may share a netdev, and a peer takes an equal (GUID, QPN) for a connection that it already has.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace vrdma::gid {

struct NodeGuid {
  std::array<uint8_t, 8> bytes{};  // in network byte order

  bool operator==(const NodeGuid&) const = default;

  // The bytes in memory order, as verbs reports node_guid (__be64).
  [[nodiscard]] uint64_t big_endian() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  // "0211:22ff:fe33:4455"
  [[nodiscard]] std::string text() const;
};

// 62 random bits from the kernel.
[[nodiscard]] NodeGuid make_node_guid();

}  // namespace vrdma::gid
