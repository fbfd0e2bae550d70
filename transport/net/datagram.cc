#include "transport/net/datagram.h"

#include <cstring>

#include "core/wire/mad.h"
#include "transport/receiver.h"

namespace vrdma::transport::net {

using verbs::WcStatus;

wire::Packet datagram_of(const rdma::Qp& qp, const rdma::WorkRequest& request,
                         std::span<const uint8_t> payload, uint32_t psn) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  wire::Packet packet;
  packet.service = wire::Service::kUd;
  packet.operation =
      verbs::has_immediate(opcode) ? wire::Operation::kSendOnlyImm : wire::Operation::kSendOnly;
  packet.solicited = (request.wqe.flags & ipc::kSolicited) != 0;
  packet.dest_qpn = request.wqe.ud.qpn & verbs::kQpnMask;
  packet.psn = psn & verbs::kPsnMask;
  packet.imm = request.wqe.imm;
  // The high bit of the Q_Key in a request stands for that of the queue pair (IBTA 10.2.5).
  packet.qkey = (request.wqe.ud.qkey >> 31) != 0 ? qp.attributes.qkey : request.wqe.ud.qkey;
  packet.source_qpn = qp.qpn;
  packet.payload = payload.data();
  packet.payload_length = static_cast<uint32_t>(payload.size());
  return packet;
}

bool receive_datagram(rdma::Qp& qp, const wire::Packet& packet, const NetworkHeader& way,
                      Counters& counters) {
  if (packet.service != wire::Service::kUd || qp.type != verbs::QpType::kUd) {
    ++counters.bad_service;
    return false;
  }
  if (!wire::pkeys_match(packet.pkey, wire::kDefaultPkey)) {
    ++counters.bad_pkey;
    return false;
  }
  if (packet.qkey != qp.attributes.qkey) {
    ++counters.bad_qkey;
    return false;
  }
  if (!qp.can_receive() || qp.context->parked || !qp.context->device->port_active() ||
      packet.payload_length > qp.context->device->roce_mtu()) {
    ++counters.bad_state;
    return false;
  }
  const rdma::Buffer message = rdma::make_buffer(qp.context->device->buffers,
                                                 verbs::kGrhBytes + size_t{packet.payload_length});
  if (message == nullptr) {
    ++counters.dropped_no_memory;
    return false;
  }
  way.write(message->data(), packet.payload_length);
  if (packet.payload_length > 0)
    std::memcpy(message->data() + verbs::kGrhBytes, packet.payload, packet.payload_length);
  const bool imm = wire::info(packet.operation).has(wire::OperationInfo::kImmDt);
  ipc::RecvEntry entry{};
  entry.imm = packet.imm;
  entry.src_qpn = packet.source_qpn;
  entry.opcode = static_cast<uint8_t>(imm ? verbs::Opcode::kSendWithImm : verbs::Opcode::kSend);
  entry.flags = static_cast<uint8_t>(ipc::kRecvGrh | (packet.solicited ? ipc::kRecvSolicited : 0));
  entry.sl = way.kind();
  if (!receive_message(qp, message, entry)) {
    ++counters.out_of_buffer;
    return false;
  }
  qp.context->device->counters.traffic.port.receive(packet.payload_length,
                                                    way.destination.is_multicast());
  return true;
}

}  // namespace vrdma::transport::net
