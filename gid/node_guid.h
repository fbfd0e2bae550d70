// The node GUID of a vdevice: an EUI-64 of its own.
//
// Random and locally administered (bit 0x02 of the first byte is set, the group bit 0x01 is not;
// IEEE 802c), so that it equals no adapter's. Not derived from the MAC: two vdevices may share a
// netdev, and a peer takes an equal (GUID, QPN) for a connection it knows already.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace vrdma::gid {

struct NodeGuid {
  std::array<uint8_t, 8> bytes{};  // as on the wire

  bool operator==(const NodeGuid&) const = default;

  // The bytes as they lie in memory, which is how verbs hands out node_guid (__be64).
  [[nodiscard]] uint64_t big_endian() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  // "0211:22ff:fe33:4455"
  [[nodiscard]] std::string text() const;
};

// 62 bits of the kernel's randomness.
[[nodiscard]] NodeGuid make_node_guid();

}  // namespace vrdma::gid
