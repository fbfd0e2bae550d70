// The entries of the rings: work requests, completions, events.
// Source: pvrdma_dev_api.h, and vmw_pvrdma-abi.h, which user programs see. rdma-core leaves what an
// opcode does not use as it was, so only the opcode's own fields mean anything.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace vrdma::pvrdma {

struct Element {  // of a scatter/gather list
  uint64_t addr;
  uint32_t length, lkey;
};

struct ReceiveEntry {  // followed by its elements
  uint64_t wr_id;
  uint32_t elements, reserved;
};
static_assert(sizeof(ReceiveEntry) == 16);

struct AddressEntry {  // of a datagram
  uint32_t port_pd;
  uint32_t class_flow;  // traffic class << 20 | flow label
  uint8_t dgid[16];
  uint8_t src_path_bits, gid_index, static_rate, hop_limit;
  uint8_t dmac[6], reserved[6];
};
static_assert(sizeof(AddressEntry) == 40);

struct SendEntry {  // followed by its elements
  uint64_t wr_id;
  uint32_t elements, length;
  uint32_t opcode, flags;
  uint32_t immediate;  // big-endian; or a key to invalidate
  uint32_t reserved;
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t remote_addr, compare_add, swap;
      uint32_t rkey;
    } atomic;
    struct {
      uint32_t qpn, qkey;
      AddressEntry address;
    } ud;
  };
};
static_assert(sizeof(SendEntry) == 80 && offsetof(SendEntry, ud) == 32);

// The numbers of verbs.h; what follows them has another meaning for kernel and programs.
enum class SendOpcode : uint32_t {
  kWrite,
  kWriteImmediate,
  kSend,
  kSendImmediate,
  kRead,
  kSwap,
  kAdd,
};
constexpr uint32_t kFence = 1, kSignaled = 2, kSolicited = 4;  // flags

// Bytes from one entry of a send queue, or of a receive queue, to the next (pvrdma_qp.c of
// Linux 6.1).
[[nodiscard]] constexpr uint64_t send_stride(uint32_t elements) {
  return std::bit_ceil(sizeof(SendEntry) + sizeof(Element) * elements);
}
[[nodiscard]] constexpr uint64_t receive_stride(uint32_t elements) {
  return std::bit_ceil(sizeof(ReceiveEntry) + sizeof(Element) * elements);
}

struct CompletionEntry {
  uint64_t wr_id;
  uint64_t qp;  // its handle
  uint32_t opcode, status, byte_len;
  uint32_t immediate;  // big-endian
  uint32_t src_qp, flags, vendor_err;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits, port;
  uint8_t smac[6];
  uint8_t network;
  uint8_t reserved[6];
};
static_assert(sizeof(CompletionEntry) == 64 && offsetof(CompletionEntry, network) == 57);
constexpr uint32_t kHasGrh = 1, kHasImmediate = 2;  // flags

struct EventEntry {
  uint32_t type;  // of ibv_get_async_event(3)
  uint32_t object;
};

}  // namespace vrdma::pvrdma
