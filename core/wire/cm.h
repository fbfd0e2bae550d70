// The messages of the communication manager, which follow the header of a MAD.
//
// A struct here is the format: plain members are whole fields, in wire order. A member named after
// its parts (`mtu_rdc_rnr`) holds several fields and has a getter and a setter for each. Every
// message fills the 232 bytes and ends in private data. A setter truncates its value to the width
// of the field; nothing else is checked here.
//
// begin<T>() starts a message: it sets the header and zeroes the rest. Mad::as<T>() reads one,
// after cm_attribute() has determined its type.
//
// Source: IBTA 12.6 and 12.11; times are codes, 4.096 us * 2^code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/base/endian.h"
#include "core/verbs/gid.h"
#include "core/wire/mad.h"

namespace vrdma::wire {

constexpr uint8_t kCmClass = 0x07;
constexpr uint8_t kCmClassVersion = 2;
constexpr uint8_t kCmMethodSend = 0x03;  // of all messages, including answers

enum class CmAttribute : uint16_t {
  kReq = 0x0010,
  kMra = 0x0011,
  kRej = 0x0012,
  kRep = 0x0013,
  kRtu = 0x0014,
  kDreq = 0x0015,
  kDrep = 0x0016,
  kSidrReq = 0x0017,
  kSidrRep = 0x0018,
  kLap = 0x0019,
  kApr = 0x001a,
};
constexpr size_t kCmAttributes = 11;

// The CM message that a MAD contains; empty if it is none.
[[nodiscard]] inline std::optional<CmAttribute> cm_attribute(const MadHeader& header) {
  const uint16_t id = header.attribute_id;
  if (header.base_version != kMadBaseVersion || header.management_class != kCmClass ||
      header.class_version != kCmClassVersion || header.method != kCmMethodSend || id < 0x0010 ||
      id >= 0x0010 + kCmAttributes)
    return std::nullopt;
  return static_cast<CmAttribute>(id);
}

// IBTA table 111 and the annexes.
enum class RejectReason : uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidCommId = 6,
  kInvalidCommInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransport = 9,
  kStaleConnection = 10,
  kRdcDoesNotExist = 11,
  kInvalidGid = 12,
  kInvalidLid = 13,
  kInvalidSl = 14,
  kInvalidTrafficClass = 15,
  kInvalidHopLimit = 16,
  kInvalidPacketRate = 17,
  kInvalidAlternateGid = 18,
  kPortAndCmRedirect = 24,
  kPortRedirect = 25,
  kInvalidMtu = 26,
  kInsufficientResponderResources = 27,
  kConsumer = 28,
  kRnrRetry = 29,
  kDuplicateLocalCommId = 30,
  kInvalidClassVersion = 31,
  kInvalidFlowLabel = 32,
  kInvalidAlternateFlowLabel = 33,
  kVendorOption = 35,
};

// The message that an MRA or a REJ answers.
enum class Answered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

enum class CmTransport : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
constexpr uint8_t kExtendedXrc = 1;

enum class SidrStatus : uint8_t {
  kValid = 0,
  kUnsupported = 1,  // no listener
  kReject = 2,
  kNoQp = 3,
  kRedirect = 4,
  kBadVersion = 5,
};

enum class AprStatus : uint8_t { kSuccess = 0, kInvalidCommId = 1, kUnsupported = 2 };

// Bits `Low` .. `Low + Width - 1` of a byte.
template <int Low, int Width>
[[nodiscard]] constexpr uint8_t bits(uint8_t byte) {
  return static_cast<uint8_t>(byte >> Low & ((1 << Width) - 1));
}
template <int Low, int Width>
constexpr void set_bits(uint8_t& byte, unsigned value) {
  constexpr unsigned kMask = (1u << Width) - 1;
  byte = static_cast<uint8_t>((byte & ~(kMask << Low)) | (value & kMask) << Low);
}

// A path of a REQ. RoCE does not use LIDs.
struct CmPath {
  base::ub16 local_lid;
  base::ub16 remote_lid;
  verbs::Gid local_gid;   // of the sender of the REQ
  verbs::Gid remote_gid;  // of its receiver
  base::ub32 flow_and_rate;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t sl_and_subnet;
  uint8_t timeout;

  [[nodiscard]] uint32_t flow_label() const { return flow_and_rate >> 12; }
  void set_flow_label(uint32_t value) { flow_and_rate = (flow_and_rate & 0xfff) | value << 12; }
  [[nodiscard]] uint8_t packet_rate() const { return flow_and_rate & 0x3f; }
  void set_packet_rate(uint8_t value) {
    flow_and_rate = (flow_and_rate & ~0x3fu) | (value & 0x3fu);
  }
  [[nodiscard]] uint8_t sl() const { return bits<4, 4>(sl_and_subnet); }
  void set_sl(uint8_t value) { set_bits<4, 4>(sl_and_subnet, value); }
  [[nodiscard]] bool subnet_local() const { return bits<3, 1>(sl_and_subnet) != 0; }
  void set_subnet_local(bool value) { set_bits<3, 1>(sl_and_subnet, value); }
  [[nodiscard]] uint8_t ack_timeout() const { return bits<3, 5>(timeout); }
  void set_ack_timeout(uint8_t value) { set_bits<3, 5>(timeout, value); }
};
static_assert(sizeof(CmPath) == 44 && alignof(CmPath) == 1);

struct CmReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kReq;
  base::ub32 local_id;
  base::ub32 reserved;
  base::ub64 service_id;
  base::ub64 ca_guid;
  base::ub32 vendor;  // 0
  base::ub32 qkey;    // 0; only for RD
  base::ub24 qpn;
  uint8_t responder_resources;  // READs and atomics that the sender accepts
  base::ub24 eecn;
  uint8_t initiator_depth;  // READs and atomics that the sender will issue
  base::ub24 remote_eecn;
  uint8_t remote_timeout_transport_flow;
  base::ub24 starting_psn;  // first PSN of the receiver of the REQ
  uint8_t local_timeout_retry;
  base::ub16 pkey;
  uint8_t mtu_rdc_rnr;
  uint8_t retries_srq_extended;
  CmPath primary;
  CmPath alternate;  // zeros: none
  uint8_t private_data[92];

  [[nodiscard]] uint8_t remote_cm_timeout() const {
    return bits<3, 5>(remote_timeout_transport_flow);
  }
  void set_remote_cm_timeout(uint8_t value) {
    set_bits<3, 5>(remote_timeout_transport_flow, value);
  }
  [[nodiscard]] CmTransport transport() const {
    return static_cast<CmTransport>(bits<1, 2>(remote_timeout_transport_flow));
  }
  void set_transport(CmTransport value) {
    set_bits<1, 2>(remote_timeout_transport_flow, static_cast<uint8_t>(value));
  }
  [[nodiscard]] bool flow_control() const { return bits<0, 1>(remote_timeout_transport_flow) != 0; }
  void set_flow_control(bool value) { set_bits<0, 1>(remote_timeout_transport_flow, value); }
  [[nodiscard]] uint8_t local_cm_timeout() const { return bits<3, 5>(local_timeout_retry); }
  void set_local_cm_timeout(uint8_t value) { set_bits<3, 5>(local_timeout_retry, value); }
  [[nodiscard]] uint8_t retry_count() const { return bits<0, 3>(local_timeout_retry); }
  void set_retry_count(uint8_t value) { set_bits<0, 3>(local_timeout_retry, value); }
  [[nodiscard]] uint8_t mtu() const { return bits<4, 4>(mtu_rdc_rnr); }
  void set_mtu(uint8_t value) { set_bits<4, 4>(mtu_rdc_rnr, value); }
  [[nodiscard]] uint8_t rnr_retry_count() const { return bits<0, 3>(mtu_rdc_rnr); }
  void set_rnr_retry_count(uint8_t value) { set_bits<0, 3>(mtu_rdc_rnr, value); }
  [[nodiscard]] uint8_t max_cm_retries() const { return bits<4, 4>(retries_srq_extended); }
  void set_max_cm_retries(uint8_t value) { set_bits<4, 4>(retries_srq_extended, value); }
  [[nodiscard]] bool srq() const { return bits<3, 1>(retries_srq_extended) != 0; }
  void set_srq(bool value) { set_bits<3, 1>(retries_srq_extended, value); }
  [[nodiscard]] uint8_t extended_transport() const { return bits<0, 3>(retries_srq_extended); }
  void set_extended_transport(uint8_t value) { set_bits<0, 3>(retries_srq_extended, value); }
};
static_assert(offsetof(CmReq, service_id) == 8 && offsetof(CmReq, qpn) == 32);
static_assert(offsetof(CmReq, starting_psn) == 44 && offsetof(CmReq, primary) == 52);
static_assert(offsetof(CmReq, alternate) == 96 && offsetof(CmReq, private_data) == 140);

struct CmMra {
  static constexpr CmAttribute kAttribute = CmAttribute::kMra;
  base::ub32 local_id;
  base::ub32 remote_id;
  uint8_t message;
  uint8_t timeout;
  uint8_t private_data[222];

  [[nodiscard]] uint8_t answered() const { return bits<6, 2>(message); }
  void set_answered(Answered value) { set_bits<6, 2>(message, static_cast<uint8_t>(value)); }
  [[nodiscard]] uint8_t service_timeout() const { return bits<3, 5>(timeout); }
  void set_service_timeout(uint8_t value) { set_bits<3, 5>(timeout, value); }
};
static_assert(offsetof(CmMra, private_data) == 10);

struct CmRej {
  static constexpr CmAttribute kAttribute = CmAttribute::kRej;
  base::ub32 local_id;
  base::ub32 remote_id;
  uint8_t message;
  uint8_t length;
  base::ub16 reason;
  uint8_t ari[72];  // additional reject information
  uint8_t private_data[148];

  [[nodiscard]] uint8_t answered() const { return bits<6, 2>(message); }
  void set_answered(Answered value) { set_bits<6, 2>(message, static_cast<uint8_t>(value)); }
  // The sender's value; may exceed the size of the field.
  [[nodiscard]] uint8_t ari_length() const { return bits<1, 7>(length); }
  void set_ari_length(uint8_t value) { set_bits<1, 7>(length, value); }
};
static_assert(offsetof(CmRej, reason) == 10 && offsetof(CmRej, private_data) == 84);

struct CmRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kRep;
  base::ub32 local_id;
  base::ub32 remote_id;
  base::ub32 qkey;
  base::ub24 qpn;
  uint8_t reserved;
  base::ub24 eecn;
  uint8_t reserved2;
  base::ub24 starting_psn;
  uint8_t reserved3;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t delay_failover_flow;
  uint8_t rnr_srq;
  base::ub64 ca_guid;
  uint8_t private_data[196];

  [[nodiscard]] uint8_t target_ack_delay() const { return bits<3, 5>(delay_failover_flow); }
  void set_target_ack_delay(uint8_t value) { set_bits<3, 5>(delay_failover_flow, value); }
  [[nodiscard]] uint8_t failover() const { return bits<1, 2>(delay_failover_flow); }
  void set_failover(uint8_t value) { set_bits<1, 2>(delay_failover_flow, value); }
  [[nodiscard]] bool flow_control() const { return bits<0, 1>(delay_failover_flow) != 0; }
  void set_flow_control(bool value) { set_bits<0, 1>(delay_failover_flow, value); }
  [[nodiscard]] uint8_t rnr_retry_count() const { return bits<5, 3>(rnr_srq); }
  void set_rnr_retry_count(uint8_t value) { set_bits<5, 3>(rnr_srq, value); }
  [[nodiscard]] bool srq() const { return bits<4, 1>(rnr_srq) != 0; }
  void set_srq(bool value) { set_bits<4, 1>(rnr_srq, value); }
};
static_assert(offsetof(CmRep, qpn) == 12 && offsetof(CmRep, starting_psn) == 20);
static_assert(offsetof(CmRep, ca_guid) == 28 && offsetof(CmRep, private_data) == 36);

struct CmRtu {
  static constexpr CmAttribute kAttribute = CmAttribute::kRtu;
  base::ub32 local_id;
  base::ub32 remote_id;
  uint8_t private_data[224];
};

struct CmDreq {
  static constexpr CmAttribute kAttribute = CmAttribute::kDreq;
  base::ub32 local_id;
  base::ub32 remote_id;
  base::ub24 remote_qpn;  // of the receiver
  uint8_t reserved;
  uint8_t private_data[220];
};
static_assert(offsetof(CmDreq, private_data) == 12);

struct CmDrep {
  static constexpr CmAttribute kAttribute = CmAttribute::kDrep;
  base::ub32 local_id;
  base::ub32 remote_id;
  uint8_t private_data[224];
};

struct CmSidrReq {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrReq;
  base::ub32 request_id;
  base::ub16 pkey;
  base::ub16 reserved;
  base::ub64 service_id;
  uint8_t private_data[216];
};
static_assert(offsetof(CmSidrReq, private_data) == 16);

struct CmSidrRep {
  static constexpr CmAttribute kAttribute = CmAttribute::kSidrRep;
  base::ub32 request_id;
  uint8_t status;  // SidrStatus
  uint8_t info_length;
  base::ub16 reserved;
  base::ub24 qpn;
  uint8_t reserved2;
  base::ub64 service_id;
  base::ub32 qkey;
  uint8_t info[72];
  uint8_t private_data[136];
};
static_assert(offsetof(CmSidrRep, qpn) == 8 && offsetof(CmSidrRep, qkey) == 20);
static_assert(offsetof(CmSidrRep, private_data) == 96);

// A LAP requests an alternate path. Its content is ignored, because RoCE has no alternate paths.
struct CmLap {
  static constexpr CmAttribute kAttribute = CmAttribute::kLap;
  base::ub32 local_id;
  base::ub32 remote_id;
  base::ub32 reserved;
  base::ub24 remote_qpn;
  uint8_t timeout;
  base::ub32 reserved2;
  CmPath alternate;
  uint8_t private_data[168];
};
static_assert(offsetof(CmLap, alternate) == 20 && offsetof(CmLap, private_data) == 64);

struct CmApr {
  static constexpr CmAttribute kAttribute = CmAttribute::kApr;
  base::ub32 local_id;
  base::ub32 remote_id;
  uint8_t info_length;
  uint8_t status;  // AprStatus
  base::ub16 reserved;
  uint8_t info[72];
  uint8_t private_data[148];
};
static_assert(offsetof(CmApr, info) == 12 && offsetof(CmApr, private_data) == 84);

// Turns `mad` into a message of type T: zeros after the header.
template <class T>
T& begin(Mad& mad, uint64_t transaction_id) {
  std::memset(&mad, 0, sizeof mad);
  mad.header.base_version = kMadBaseVersion;
  mad.header.management_class = kCmClass;
  mad.header.class_version = kCmClassVersion;
  mad.header.method = kCmMethodSend;
  mad.header.transaction_id = transaction_id;
  mad.header.attribute_id = static_cast<uint16_t>(T::kAttribute);
  return mad.as<T>();
}

}  // namespace vrdma::wire
