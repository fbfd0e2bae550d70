// The packets of RoCE v2, from the base transport header to the invariant CRC.
//
// A packet is Bth, the extension headers that its opcode has, payload, 0 to 3 bytes of padding and
// the ICRC (icrc.h). decode() is the only reader and encode() the only writer of these headers, and
// both follow one table of opcodes. The bytes may come from any host: a Packet that decode()
// returns has every header inside the bytes, and no payload where its operation has none. Lengths
// that depend on the path MTU are checked by length_fits().
//
// Source: IBTA 9.2 (headers), 9.3 (table 38: opcodes), 9.7.5 (AETH), annex A17 (RoCE v2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/endian.h"
#include "core/verbs/socket_address.h"
#include "core/verbs/types.h"

namespace vrdma::wire {

using verbs::kRocePort;

struct Bth {
  uint8_t opcode;
  uint8_t flags;  // solicited event 0x80, migration 0x40, pad count 0x30, version 0x0f
  base::ub16 pkey;
  uint8_t congestion;  // FECN 0x80, BECN 0x40; no part of the ICRC
  base::ub24 dest_qpn;
  uint8_t ack_request;  // 0x80
  base::ub24 psn;
};
static_assert(sizeof(Bth) == 12 && alignof(Bth) == 1);

struct Reth {
  base::ub64 va;
  base::ub32 rkey;
  base::ub32 length;
};
static_assert(sizeof(Reth) == 16);

struct AtomicEth {
  base::ub64 va;
  base::ub32 rkey;
  base::ub64 swap_add;
  base::ub64 compare;
};
static_assert(sizeof(AtomicEth) == 28);

struct Aeth {
  uint8_t syndrome;
  base::ub24 msn;
};
static_assert(sizeof(Aeth) == 4);

struct AtomicAckEth {
  base::ub64 original;
};
static_assert(sizeof(AtomicAckEth) == 8);

struct Deth {
  base::ub32 qkey;
  uint8_t reserved;
  base::ub24 source_qpn;
};
static_assert(sizeof(Deth) == 8);

struct ImmDt {
  uint8_t bytes[4];
};
static_assert(sizeof(ImmDt) == 4);

struct Ieth {
  base::ub32 rkey;
};
static_assert(sizeof(Ieth) == 4);

// Of the traffic class, or type of service (RFC 3168 section 5): the bits of the codepoint and
// those of congestion, and values of the latter.
constexpr uint8_t kDscp = 0xfc, kEcn = 0x03;
constexpr uint8_t kEct0 = 0x02, kCongestionExperienced = 0x03;

constexpr size_t kIcrcBytes = 4;
constexpr size_t kCnpReserved = 16;
// BTH and the longest extension headers: those of an atomic.
constexpr size_t kMaxHeaders = sizeof(Bth) + sizeof(AtomicEth);

// The upper three bits of the opcode. Reliable datagrams and XRC are not decoded.
enum class Service : uint8_t { kRc = 0x00, kUc = 0x20, kUd = 0x60, kCnp = 0x80 };

// The lower five.
enum class Operation : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kAtomicWrite = 0x1d,
};
constexpr auto kCnpOperation = static_cast<Operation>(0x01);  // the only one of its service

// What the table of opcodes says of an operation.
struct OperationInfo {
  enum Header : uint8_t {
    kReth = 1,
    kAtomicEth = 2,
    kAeth = 4,
    kAtomicAckEth = 8,
    kImmDt = 16,
    kIeth = 32,
  };
  enum class Payload : uint8_t { kNone, kMtu, kUpToMtu, kNoneToMtu, kEight };
  enum class Family : uint8_t { kNone, kSend, kWrite, kRead, kAtomic, kResponse };

  Family family = Family::kNone;  // kNone: there is no such operation
  uint8_t headers = 0;
  Payload payload = Payload::kNone;
  bool begins = false, ends = false;  // FIRST or ONLY; LAST or ONLY

  [[nodiscard]] constexpr bool has(Header header) const { return (headers & header) != 0; }
};
[[nodiscard]] const OperationInfo& info(Operation operation);

// Of a request, if it has been read, or as it is going to be written.
struct Packet {
  Service service = Service::kRc;
  Operation operation = Operation::kSendOnly;
  bool solicited = false;
  bool ack_request = false;
  bool becn = false;
  uint8_t syndrome = 0;
  uint16_t pkey = 0xffff;
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  uint32_t rkey = 0;
  uint64_t va = 0;
  uint32_t dma_length = 0;
  uint32_t imm =
      0;  // as in ipc::SendWqe: bytes in the order of the wire; or the rkey to invalidate
  union {
    uint64_t swap_add = 0;  // of a request
    uint64_t original;      // of an atomic acknowledge
  };
  uint64_t compare = 0;
  uint32_t msn = 0;
  uint32_t qkey = 0, source_qpn = 0;  // UD
  uint32_t payload_length = 0;
  const uint8_t* payload = nullptr;
};

// A congestion notification packet, to the queue pair that should send more slowly (A17.9.3).
[[nodiscard]] Packet make_cnp(uint32_t dest_qpn);

// `bytes`: from the BTH to the end of the ICRC, which is not verified here. Empty: the opcode is
// none of those above, a header or the padding does not fit, or the transport version is not 0.
[[nodiscard]] std::optional<Packet> decode(std::span<const uint8_t> bytes);

// Writes the BTH and the extension headers, at most kMaxHeaders bytes; returns how many. Payload,
// pad_bytes() zeros and the ICRC must follow. Of a CNP the reserved bytes are its payload.
size_t encode(const Packet& packet, uint8_t* out);
[[nodiscard]] size_t header_bytes(const Packet& packet);
[[nodiscard]] constexpr uint32_t pad_bytes(uint32_t payload_length) { return -payload_length & 3; }
// Of the whole packet, from the BTH to the ICRC.
[[nodiscard]] inline size_t packet_bytes(const Packet& packet) {
  return header_bytes(packet) + packet.payload_length + pad_bytes(packet.payload_length) +
         kIcrcBytes;
}

// IBTA 9.7.4.1.6 and 9.8.3.1: how long the payload of each operation may be. `mtu` in bytes.
[[nodiscard]] bool length_fits(Operation operation, uint32_t payload_length, uint32_t mtu);

// IBTA 10.9.3: the keys are of one partition, and one of the two is a full member.
[[nodiscard]] constexpr bool pkeys_match(uint16_t a, uint16_t b) {
  constexpr uint16_t kFull = 0x8000;
  return ((a ^ b) & ~kFull & 0xffff) == 0 && ((a | b) & kFull) != 0 && (a & ~kFull & 0xffff) != 0;
}

// Packet sequence numbers: 24 bits, which wrap.
[[nodiscard]] constexpr uint32_t psn_add(uint32_t psn, uint32_t count) {
  return (psn + count) & verbs::kPsnMask;
}
// How far `to` is beyond `from`, from -2^23 to 2^23 - 1.
[[nodiscard]] constexpr int32_t psn_distance(uint32_t from, uint32_t to) {
  return static_cast<int32_t>((to - from) << 8) >> 8;
}

// The packets that `length` bytes need, at least one.
[[nodiscard]] constexpr uint32_t packets_of(uint64_t length, uint32_t mtu) {
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu - 1) / mtu);
}

// AETH syndromes (IBTA 9.7.5.1.2).
enum class AckKind : uint8_t { kAck = 0, kRnrNak = 1, kReserved = 2, kNak = 3 };
[[nodiscard]] constexpr AckKind ack_kind(uint8_t syndrome) {
  return (syndrome & 0x80) != 0 ? AckKind::kReserved : static_cast<AckKind>(syndrome >> 5 & 3);
}
constexpr uint8_t kAckWithoutCredits = 0x1f;
constexpr uint8_t kRnrNak = 0x20;  // and the code of the timer in the lower five bits
constexpr uint8_t kNakSequence = 0x60;
constexpr uint8_t kNakInvalidRequest = 0x61;
constexpr uint8_t kNakRemoteAccess = 0x62;
constexpr uint8_t kNakOperational = 0x63;

// How long a requester waits after an RNR NAK, in microseconds (IBTA table 45).
[[nodiscard]] constexpr uint32_t rnr_timer_us(uint8_t code) {
  constexpr uint32_t kTens[] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                16,    24,   32,   48,    64,    96,    128,   192,
                                256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTens[code & 31] * 10;
}
// The local ACK timeout, in nanoseconds; 0: never (IBTA 9.7.6.1.3).
[[nodiscard]] constexpr uint64_t ack_timeout_ns(uint8_t code) {
  return (code & 31) == 0 ? 0 : 4096ull << (code & 31);
}

// The UDP source port, which routers take for the path of a flow; constant for a queue pair. With a
// flow label of 0 the QPNs make one (rdma_get_udp_sport of the kernel's ib_verbs.h). Of a datagram,
// the QPN of its receiver.
[[nodiscard]] constexpr uint16_t source_port(uint32_t flow_label, uint32_t local_qpn,
                                             uint32_t remote_qpn) {
  uint32_t label = flow_label & 0xfffff;
  if (label == 0) {
    uint64_t mixed = uint64_t{local_qpn} * remote_qpn;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    label = static_cast<uint32_t>(mixed & 0xfffff);
  }
  return static_cast<uint16_t>(((label & 0x3fff) ^ (label & 0xfc000) >> 14) | 0xc000);
}

}  // namespace vrdma::wire
