#include "core/wire/roce.h"

#include <array>
#include <cstring>

namespace vrdma::wire {

namespace {

using Info = OperationInfo;
using Family = Info::Family;
using Payload = Info::Payload;

constexpr uint8_t kServiceMask = 0xe0;
constexpr uint8_t kSolicited = 0x80, kVersionMask = 0x0f, kAckRequest = 0x80, kBecn = 0x40;

constexpr std::array<Info, 32> make_table() {
  std::array<Info, 32> table{};
  const auto set = [&](Operation operation, Info info) {
    table[static_cast<size_t>(operation)] = info;
  };
  constexpr bool kBegins = true, kEnds = true;
  const auto set_six = [&](uint8_t first, Family family, uint8_t reth) {
    const auto at = [&](int i) { return static_cast<Operation>(first + i); };
    const auto reth_and_imm = static_cast<uint8_t>(reth | Info::kImmDt);
    set(at(0), {family, reth, Payload::kMtu, kBegins, false});
    set(at(1), {family, 0, Payload::kMtu, false, false});
    set(at(2), {family, 0, Payload::kUpToMtu, false, kEnds});
    set(at(3), {family, Info::kImmDt, Payload::kUpToMtu, false, kEnds});
    set(at(4), {family, reth, Payload::kNoneToMtu, kBegins, kEnds});
    set(at(5), {family, reth_and_imm, Payload::kNoneToMtu, kBegins, kEnds});
  };
  set_six(0x00, Family::kSend, 0);
  set_six(0x06, Family::kWrite, Info::kReth);
  set(Operation::kSendLastInvalidate,
      {Family::kSend, Info::kIeth, Payload::kUpToMtu, false, kEnds});
  set(Operation::kSendOnlyInvalidate,
      {Family::kSend, Info::kIeth, Payload::kNoneToMtu, kBegins, kEnds});
  set(Operation::kReadRequest, {Family::kRead, Info::kReth, Payload::kNone, kBegins, kEnds});
  set(Operation::kCompareSwap, {Family::kAtomic, Info::kAtomicEth, Payload::kNone, kBegins, kEnds});
  set(Operation::kFetchAdd, {Family::kAtomic, Info::kAtomicEth, Payload::kNone, kBegins, kEnds});
  set(Operation::kAtomicWrite, {Family::kAtomic, Info::kReth, Payload::kEight, kBegins, kEnds});
  set(Operation::kReadResponseFirst,
      {Family::kResponse, Info::kAeth, Payload::kMtu, kBegins, false});
  set(Operation::kReadResponseMiddle, {Family::kResponse, 0, Payload::kMtu, false, false});
  set(Operation::kReadResponseLast,
      {Family::kResponse, Info::kAeth, Payload::kUpToMtu, false, kEnds});
  set(Operation::kReadResponseOnly,
      {Family::kResponse, Info::kAeth, Payload::kNoneToMtu, kBegins, kEnds});
  set(Operation::kAcknowledge, {Family::kResponse, Info::kAeth, Payload::kNone, kBegins, kEnds});
  set(Operation::kAtomicAcknowledge,
      {Family::kResponse, Info::kAeth | Info::kAtomicAckEth, Payload::kNone, kBegins, kEnds});
  return table;
}
constexpr std::array<Info, 32> kTable = make_table();

// Which operations a service has (IBTA table 38).
bool has(Service service, Operation operation) {
  const Family family = info(operation).family;
  switch (service) {
    case Service::kRc:
      return family != Family::kNone;
    case Service::kUc:
      return (family == Family::kSend && !info(operation).has(Info::kIeth)) ||
             family == Family::kWrite;
    case Service::kUd:
      return operation == Operation::kSendOnly || operation == Operation::kSendOnlyImm;
    case Service::kCnp:
      return operation == kCnpOperation;
  }
  return false;
}

// Takes headers off the front of the bytes.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <class T>
  bool take(T* header) {
    if (bytes_.size() < sizeof *header) return false;
    std::memcpy(header, bytes_.data(), sizeof *header);
    bytes_ = bytes_.subspan(sizeof *header);
    return true;
  }
  [[nodiscard]] std::span<const uint8_t> rest() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

bool take_headers(Reader& reader, Packet* packet) {
  const Info& about = info(packet->operation);
  if (packet->service == Service::kUd) {
    Deth deth;
    if (!reader.take(&deth)) return false;
    packet->qkey = deth.qkey;
    packet->source_qpn = deth.source_qpn;
  }
  if (about.has(Info::kReth)) {
    Reth reth;
    if (!reader.take(&reth)) return false;
    packet->va = reth.va;
    packet->rkey = reth.rkey;
    packet->dma_length = reth.length;
  }
  if (about.has(Info::kAtomicEth)) {
    AtomicEth atomic;
    if (!reader.take(&atomic)) return false;
    packet->va = atomic.va;
    packet->rkey = atomic.rkey;
    packet->swap_add = atomic.swap_add;
    packet->compare = atomic.compare;
  }
  if (about.has(Info::kAeth)) {
    Aeth aeth;
    if (!reader.take(&aeth)) return false;
    packet->syndrome = aeth.syndrome;
    packet->msn = aeth.msn;
  }
  if (about.has(Info::kAtomicAckEth)) {
    AtomicAckEth ack;
    if (!reader.take(&ack)) return false;
    packet->original = ack.original;
  }
  if (about.has(Info::kImmDt)) {
    ImmDt imm;
    if (!reader.take(&imm)) return false;
    std::memcpy(&packet->imm, imm.bytes, sizeof imm.bytes);
  }
  if (about.has(Info::kIeth)) {
    Ieth ieth;
    if (!reader.take(&ieth)) return false;
    packet->imm = ieth.rkey;
  }
  return true;
}

}  // namespace

const OperationInfo& info(Operation operation) {
  return kTable[static_cast<size_t>(operation) & (kTable.size() - 1)];
}

Packet make_cnp(uint32_t dest_qpn) {
  static constexpr uint8_t kReserved[kCnpReserved] = {};
  Packet packet;
  packet.service = Service::kCnp;
  packet.operation = kCnpOperation;
  packet.becn = true;
  packet.dest_qpn = dest_qpn;
  packet.payload = kReserved;
  packet.payload_length = sizeof kReserved;
  return packet;
}

std::optional<Packet> decode(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(Bth) + kIcrcBytes || bytes.size() % 4 != 0) return std::nullopt;
  Reader reader(bytes.first(bytes.size() - kIcrcBytes));
  Bth bth;
  if (!reader.take(&bth) || (bth.flags & kVersionMask) != 0) return std::nullopt;
  Packet packet;
  packet.service = static_cast<Service>(bth.opcode & kServiceMask);
  packet.operation = static_cast<Operation>(bth.opcode & ~kServiceMask);
  if (!has(packet.service, packet.operation)) return std::nullopt;
  packet.solicited = (bth.flags & kSolicited) != 0;
  packet.ack_request = (bth.ack_request & kAckRequest) != 0;
  packet.becn = (bth.congestion & kBecn) != 0;
  packet.pkey = bth.pkey;
  packet.dest_qpn = bth.dest_qpn;
  packet.psn = bth.psn;
  const bool cnp = packet.service == Service::kCnp;
  if (!cnp && !take_headers(reader, &packet)) return std::nullopt;
  const size_t padding = bth.flags >> 4 & 3;
  if (padding > reader.rest().size()) return std::nullopt;
  packet.payload = reader.rest().data();
  packet.payload_length = static_cast<uint32_t>(reader.rest().size() - padding);
  if (cnp) return packet.payload_length == kCnpReserved ? std::optional(packet) : std::nullopt;
  if (info(packet.operation).payload == Payload::kNone && packet.payload_length != 0)
    return std::nullopt;
  return packet;
}

size_t header_bytes(const Packet& packet) {
  if (packet.service == Service::kCnp) return sizeof(Bth);
  const Info& about = info(packet.operation);
  size_t size = sizeof(Bth);
  if (packet.service == Service::kUd) size += sizeof(Deth);
  if (about.has(Info::kReth)) size += sizeof(Reth);
  if (about.has(Info::kAtomicEth)) size += sizeof(AtomicEth);
  if (about.has(Info::kAeth)) size += sizeof(Aeth);
  if (about.has(Info::kAtomicAckEth)) size += sizeof(AtomicAckEth);
  if (about.has(Info::kImmDt)) size += sizeof(ImmDt);
  if (about.has(Info::kIeth)) size += sizeof(Ieth);
  return size;
}

size_t encode(const Packet& packet, uint8_t* out) {
  uint8_t* at = out;
  const auto put = [&at](const auto& header) {
    std::memcpy(at, &header, sizeof header);
    at += sizeof header;
  };
  Bth bth;
  bth.opcode = static_cast<uint8_t>(packet.service) | static_cast<uint8_t>(packet.operation);
  bth.flags = static_cast<uint8_t>((packet.solicited ? kSolicited : 0) |
                                   pad_bytes(packet.payload_length) << 4);
  bth.pkey = packet.pkey;
  bth.congestion = packet.becn ? kBecn : 0;
  bth.dest_qpn = packet.dest_qpn;
  bth.ack_request = packet.ack_request ? kAckRequest : 0;
  bth.psn = packet.psn;
  put(bth);
  if (packet.service == Service::kCnp) return sizeof bth;
  const Info& about = info(packet.operation);
  if (packet.service == Service::kUd) put(Deth{packet.qkey, 0, packet.source_qpn});
  if (about.has(Info::kReth)) put(Reth{packet.va, packet.rkey, packet.dma_length});
  if (about.has(Info::kAtomicEth))
    put(AtomicEth{packet.va, packet.rkey, packet.swap_add, packet.compare});
  if (about.has(Info::kAeth)) put(Aeth{packet.syndrome, packet.msn});
  if (about.has(Info::kAtomicAckEth)) put(AtomicAckEth{packet.original});
  if (about.has(Info::kImmDt)) {
    ImmDt imm;
    std::memcpy(imm.bytes, &packet.imm, sizeof imm.bytes);
    put(imm);
  }
  if (about.has(Info::kIeth)) put(Ieth{packet.imm});
  return static_cast<size_t>(at - out);
}

bool length_fits(Operation operation, uint32_t payload_length, uint32_t mtu) {
  switch (info(operation).payload) {
    case Payload::kNone:
      return payload_length == 0;
    case Payload::kMtu:
      return payload_length == mtu;
    case Payload::kUpToMtu:
      return payload_length > 0 && payload_length <= mtu;
    case Payload::kNoneToMtu:
      return payload_length <= mtu;
    case Payload::kEight:
      return payload_length == sizeof(uint64_t);
  }
  return false;
}

}  // namespace vrdma::wire
