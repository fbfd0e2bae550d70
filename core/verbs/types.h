// The terms of verbs as plain types: states, opcodes, statuses, access rights.
//
// Values are those of <infiniband/verbs.h>, and so of the kernel's uverbs ABI; client/verbs asserts
// this. Names are those of the IBTA specification. Independent of sockets and memory.
#pragma once

#include <cstdint>

namespace vrdma::verbs {

// IBTA 10.3.1: queue pair 1, the reliable and unreliable connected services, datagrams, whole
// Ethernet frames, and the two ends of the extended reliable connection (annex A14). Verbs have no
// name for queue pair 1; its value is the kernel's (IB_QPT_GSI).
enum class QpType : uint8_t {
  kGsi = 1,
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcInitiator = 9,
  kXrcTarget = 10
};

constexpr bool is_connected(QpType type) {
  return type != QpType::kGsi && type != QpType::kUd && type != QpType::kRawPacket;
}
constexpr bool is_xrc(QpType type) {
  return type == QpType::kXrcInitiator || type == QpType::kXrcTarget;
}
// Connected types with acknowledgements.
constexpr bool is_reliable(QpType type) { return is_connected(type) && type != QpType::kUc; }

// IBTA 10.3.1, figure 124.
enum class QpState : uint32_t {
  kReset = 0,
  kInit = 1,
  kRtr = 2,
  kRts = 3,
  kSqd = 4,
  kSqe = 5,
  kErr = 6,
};

enum class Opcode : uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
  kLocalInvalidate = 7,
  kBindWindow = 8,
  kSendWithInvalidate = 9,
  kAtomicWrite = 10,  // the only value that differs from verbs.h
};
constexpr uint8_t kOpcodeCount = 11;

constexpr bool is_send(Opcode op) {
  return op == Opcode::kSend || op == Opcode::kSendWithImm || op == Opcode::kSendWithInvalidate;
}
// Operations that change keys of their own process and need no peer.
constexpr bool is_local(Opcode op) {
  return op == Opcode::kLocalInvalidate || op == Opcode::kBindWindow;
}
constexpr bool is_write(Opcode op) {
  return op == Opcode::kRdmaWrite || op == Opcode::kRdmaWriteWithImm || op == Opcode::kAtomicWrite;
}
constexpr bool is_atomic(Opcode op) {
  return op == Opcode::kCompareSwap || op == Opcode::kFetchAdd;
}
constexpr bool has_immediate(Opcode op) {
  return op == Opcode::kRdmaWriteWithImm || op == Opcode::kSendWithImm;
}
constexpr bool consumes_receive(Opcode op) {
  return is_send(op) || op == Opcode::kRdmaWriteWithImm;
}

// IBTA 11.6.2.
enum class WcStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kFlushed = 5,
  kWindowBindError = 6,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
};

// ibv_access_flags.
enum Access : uint32_t {
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
  kMwBind = 1u << 4,
  kZeroBased = 1u << 5,
  kOnDemand = 1u << 6,
  kHugePages = 1u << 7,
};
constexpr uint32_t kAccessOptional = 0x3ff00000;  // hints such as RELAXED_ORDERING
constexpr uint32_t kAccessRemote = kRemoteWrite | kRemoteRead | kRemoteAtomic;
constexpr uint32_t kAccessKnown =
    kLocalWrite | kAccessRemote | kMwBind | kZeroBased | kOnDemand | kHugePages | kAccessOptional;

// ibv_event_type.
enum class Event : uint32_t {
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kSqDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortError = 10,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kGidChange = 18,
};

// One scatter/gather element: `length` bytes at the virtual address `addr` of the process that
// registered `lkey`.
struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

// ibv_qp_attr_mask.
enum QpAttrMask : uint32_t {
  kQpState = 1u << 0,
  kQpCurState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAv = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCnt = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxQpRdAtomic = 1u << 13,
  kQpAltPath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
  kQpRateLimit = 1u << 25,
};

// ibv_srq_attr_mask.
enum SrqAttrMask : uint32_t { kSrqMaxWr = 1u << 0, kSrqLimit = 1u << 1 };

// The address vector of a connected QP or of an address handle (IBTA 11.2.2.1).
struct AddressVector {
  uint8_t dgid[16];
  uint32_t flow_label;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t sl;
  uint8_t is_global;
  uint8_t port_num;
  uint16_t dlid;
  uint8_t static_rate;
  uint8_t src_path_bits;
  uint8_t reserved[2];
};
static_assert(sizeof(AddressVector) == 32);

// The attributes of ModifyQp and QueryQp. Units as in ibv_modify_qp(3).
struct QpAttributes {
  uint32_t state;
  uint32_t path_mtu;  // ibv_mtu: 1 = 256 .. 5 = 4096
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qpn;
  uint32_t access_flags;
  AddressVector av;
  uint16_t pkey_index;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;  // code of IBTA table 45
  uint8_t port_num;
  uint8_t timeout;    // 4.096 us * 2^timeout; 0 = infinite
  uint8_t retry_cnt;  // 0..7
  uint8_t rnr_retry;  // 0..7, 7 = infinite
  uint8_t sq_draining;
  uint8_t path_mig_state;
  uint8_t en_sqd_async_notify;
};

constexpr uint32_t kQpnMask = 0xffffff;
constexpr uint32_t kPsnMask = 0xffffff;
constexpr uint32_t kMulticastQpn = 0xffffff;
constexpr uint64_t kMaxMessage = 1ull << 31;  // bytes, IBTA 9.7.6
constexpr uint32_t kGrhBytes = 40;            // before a datagram in its receive buffer

}  // namespace vrdma::verbs
