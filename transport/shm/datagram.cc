#include "transport/shm/datagram.h"

#include <cstring>

#include "core/wire/ip.h"

namespace vrdma::transport {

using verbs::kGrhBytes;
using verbs::WcStatus;

namespace {

constexpr uint32_t kUdpBthDethIcrc = 8 + 12 + 8 + 4;
// The kind of the network header in front of a datagram, which its completion is to tell (annex
// A17.4.5.1). ibv_wc has no field for that; programs (UCX) look for it where mlx5 puts it, in `sl`,
// which has no meaning of its own with RoCE: bit 3 for UDP, then the kind.
uint8_t header_kind(const verbs::Gid& source) {
  constexpr uint8_t kUdp = 8, kIpv6 = 1, kIpv4 = 2;
  return kUdp | (source.is_ipv4_mapped() ? kIpv4 : kIpv6);
}

// What a RoCE v2 receiver finds in front of the payload.
void write_header(uint8_t* out, const verbs::Gid& source, const verbs::Gid& destination,
                  const ipc::SendWqe& wqe, size_t payload) {
  const auto length = static_cast<uint16_t>(payload + kUdpBthDethIcrc);
  const uint8_t hop_limit = wqe.ud.hop_limit != 0 ? wqe.ud.hop_limit : uint8_t{64};
  if (source.is_ipv4_mapped()) {
    std::memset(out, 0, wire::kIpv4InGrh);
    wire::Ipv4Header header{};
    header.version_and_words = wire::kIpv4NoOptions;
    header.tos = wqe.ud.traffic_class;
    header.total_length = static_cast<uint16_t>(length + sizeof header);
    header.ttl = hop_limit;
    header.protocol = wire::kProtocolUdp;
    std::memcpy(header.source, source.bytes.data() + 12, 4);
    std::memcpy(header.destination, destination.bytes.data() + 12, 4);
    header.checksum = static_cast<uint16_t>(~wire::sum(header));
    std::memcpy(out + wire::kIpv4InGrh, &header, sizeof header);
    return;
  }
  wire::Ipv6Header header{};
  header.version_class_label =
      6u << 28 | static_cast<uint32_t>(wqe.ud.traffic_class) << 20 | (wqe.ud.flow_label & 0xfffff);
  header.payload_length = length;
  header.next_header = wire::kProtocolUdp;
  header.hop_limit = hop_limit;
  std::memcpy(header.source, source.bytes.data(), 16);
  std::memcpy(header.destination, destination.bytes.data(), 16);
  std::memcpy(out, &header, sizeof header);
}

}  // namespace

bool DatagramPath::admit(const rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  const rdma::Device& device = *qp_.context->device;
  if (!verbs::is_send(opcode) || opcode == verbs::Opcode::kSendWithInvalidate ||
      request.wqe.ud.sgid_index >= device.gids.size())
    return false;
  source_ = device.gids[request.wqe.ud.sgid_index];
  return true;
}

uint64_t DatagramPath::max_length() const { return qp_.context->device->roce_mtu(); }

WcStatus DatagramPath::send(const rdma::WorkRequest& request, const Message& message) {
  rdma::Fabric& fabric = *qp_.context->device->fabric;
  verbs::Gid destination;
  std::memcpy(destination.bytes.data(), request.wqe.ud.dgid, destination.bytes.size());
  write_header(message->data(), source_, destination, request.wqe, message->size() - kGrhBytes);
  if (!destination.is_multicast()) {
    rdma::Qp* target = fabric.find(destination, request.wqe.ud.qpn);
    if (target == nullptr)
      ++fabric.counters.datagrams_dropped;
    else
      deliver(*target, request, destination, message);
    return WcStatus::kSuccess;
  }
  const auto* members = fabric.members(destination);
  if (members == nullptr) return WcStatus::kSuccess;
  for (rdma::Qp* member : *members)
    if (member != &qp_) deliver(*member, request, destination, message);
  return WcStatus::kSuccess;
}

void DatagramPath::deliver(rdma::Qp& target, const rdma::WorkRequest& request,
                           const verbs::Gid& destination, const Message& message) {
  // The high bit of the Q_Key in a request stands for that of the sending queue pair (IBTA 10.2.5).
  const uint32_t qkey =
      (request.wqe.ud.qkey >> 31) != 0 ? qp_.attributes.qkey : request.wqe.ud.qkey;
  ipc::RecvEntry entry{};
  entry.imm = request.wqe.imm;
  entry.src_qpn = qp_.qpn;
  entry.opcode = request.wqe.opcode;
  entry.flags = static_cast<uint8_t>(
      ipc::kRecvGrh | ((request.wqe.flags & ipc::kSolicited) != 0 ? ipc::kRecvSolicited : 0));
  entry.sl = header_kind(source_);
  if (target.type != verbs::QpType::kUd ||
      (target.attributes.qkey != qkey && !destination.is_multicast()) ||
      !receive_message(target, message, entry))
    ++qp_.context->device->fabric->counters.datagrams_dropped;
}

}  // namespace vrdma::transport
