#include "transport/shm/datagram.h"

#include "transport/network_header.h"
#include "transport/receiver.h"

namespace vrdma::transport {

using verbs::kGrhBytes;
using verbs::WcStatus;

bool DatagramSender::admit(const rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  const rdma::Device& device = *qp_.context->device;
  if (!verbs::is_send(opcode) || opcode == verbs::Opcode::kSendWithInvalidate ||
      !device.has_gid(request.wqe.ud.sgid_index))
    return false;
  source_ = device.gids[request.wqe.ud.sgid_index];
  return true;
}

uint64_t DatagramSender::max_length() const { return qp_.context->device->roce_mtu(); }

// Others may have sent there since. To a group or another host it is not sent again: some may have
// it.
std::optional<WcStatus> DatagramSender::after_crash(rdma::WorkRequest& request,
                                                    const SendRing::Interrupted& interrupted) {
  const uint32_t receive = interrupted.receive;
  const verbs::Gid destination = verbs::Gid::of(request.wqe.ud.dgid);
  const rdma::Device& device = *qp_.context->device;
  const rdma::Device* const there =
      destination.is_multicast() ? nullptr : device.fabric->near(device, destination);
  const rdma::Qp* const target = there != nullptr ? there->find_qp(request.wqe.ud.qpn) : nullptr;
  if (target != nullptr && target->inbox_taken_over == receive) return {};
  return WcStatus::kSuccess;
}

Progress DatagramSender::send(const rdma::WorkRequest& request, const Message& message) {
  const rdma::Device& device = *qp_.context->device;
  rdma::Fabric& fabric = *device.fabric;
  NetworkHeader header;
  header.source = source_;
  const verbs::Gid& destination = header.destination = verbs::Gid::of(request.wqe.ud.dgid);
  header.traffic_class = request.wqe.ud.traffic_class;
  header.hop_limit = request.wqe.ud.hop_limit;
  header.flow_label = request.wqe.ud.flow_label;
  const uint64_t length = message->size() - kGrhBytes;
  if (served_ == 0) header.write(message->data(), length);
  if (!device.port_active()) {
    ++fabric.counters.datagrams_dropped;
    return done(WcStatus::kSuccess, 0, length);
  }
  if (!destination.is_multicast()) {
    const rdma::Device* const there = fabric.near(device, destination);
    if (there == nullptr && send_beyond(request, header, message))
      return done(WcStatus::kSuccess, 0, length);
    rdma::Qp* const target = there != nullptr ? there->find_qp(request.wqe.ud.qpn) : nullptr;
    if (target == nullptr) {
      ++fabric.counters.datagrams_dropped;
    } else {
      ring_.mark(ipc::Mark::kBegun, target->inbox_head);
      (void)deliver(*target, request, header, message);
    }
    return done(WcStatus::kSuccess, 0, length);
  }
  // To bring the message together was one copy, which a group without members costs too.
  uint64_t moved = served_ == 0 ? length : 0;
  uint64_t cost = 0;
  if (served_ == 0) (void)send_beyond(request, header, message);
  const auto* members = fabric.members(destination);
  if (members != nullptr) ring_.mark(ipc::Mark::kBegun);
  while (members != nullptr && served_ < members->size() && cost < kTurnBytes) {
    rdma::Qp* const member = (*members)[served_++];
    if (member == &qp_ || !member->context->device->is_near(device)) continue;
    cost += kRequestCost;
    if (!deliver(*member, request, header, message)) continue;
    moved += length;
    cost += length;
  }
  Progress progress = done(WcStatus::kSuccess, 0, moved);
  if (members != nullptr && served_ < members->size()) progress.kind = Progress::Kind::kAgain;
  return progress;
}

// The mark comes first: a datagram is lost rather than sent twice.
bool DatagramSender::send_beyond(const rdma::WorkRequest& request, const NetworkHeader& header,
                                 const Message& message) {
  if (!beyond_) return false;
  ring_.mark(ipc::Mark::kBegun);
  return beyond_(qp_, request, header, std::span(*message).subspan(kGrhBytes));
}

bool DatagramSender::deliver(rdma::Qp& target, const rdma::WorkRequest& request,
                             const NetworkHeader& header, const Message& message) {
  // The high bit of the Q_Key in a request stands for that of the sending queue pair (IBTA 10.2.5).
  const uint32_t qkey =
      (request.wqe.ud.qkey >> 31) != 0 ? qp_.attributes.qkey : request.wqe.ud.qkey;
  ipc::RecvEntry entry{};
  entry.imm = request.wqe.imm;
  entry.src_qpn = qp_.qpn;
  entry.opcode = request.wqe.opcode;
  entry.flags = static_cast<uint8_t>(
      ipc::kRecvGrh | ((request.wqe.flags & ipc::kSolicited) != 0 ? ipc::kRecvSolicited : 0));
  entry.sl = header.kind();
  const bool received = target.type == verbs::QpType::kUd && target.attributes.qkey == qkey &&
                        !target.context->parked && target.context->device->port_active() &&
                        receive_message(target, message, entry, qp_.context->device->meter);
  if (received)
    target.context->device->counters.traffic.port.receive(message->size() - kGrhBytes,
                                                          header.destination.is_multicast());
  else
    ++qp_.context->device->fabric->counters.datagrams_dropped;
  return received;
}

}  // namespace vrdma::transport
