#include "transport/raw/mad.h"

#include <cstring>

#include "transport/receiver.h"

namespace vrdma::transport {

using verbs::WcStatus;

bool MadSender::admit(const rdma::WorkRequest& request) {
  const rdma::Device& device = *qp_.context->device;
  if (static_cast<verbs::Opcode>(request.wqe.opcode) != verbs::Opcode::kSend ||
      request.wqe.ud.qpn != wire::kGsiQpn || !device.has_gid(request.wqe.ud.sgid_index))
    return false;
  source_ = device.gids[request.wqe.ud.sgid_index];
  return true;
}

Progress MadSender::send(const rdma::WorkRequest& request, const Message& message) {
  if (message->size() != wire::kMadBytes) return done(WcStatus::kLocalLengthError);
  AddressedMad all;
  all.header.source = source_;
  all.header.destination = verbs::Gid::of(request.wqe.ud.dgid);
  all.header.traffic_class = request.wqe.ud.traffic_class;
  all.header.hop_limit = request.wqe.ud.hop_limit;
  all.header.flow_label = request.wqe.ud.flow_label;
  std::memcpy(&all.mad, message->data(), sizeof all.mad);
  ring_.mark(ipc::Mark::kDone);  // after a worker's death it is lost rather than sent twice
  desk_->send(all);
  return done(WcStatus::kSuccess, 0, message->size());
}

bool receive_mad(rdma::Qp& qp, const AddressedMad& mad) {
  const auto message = std::make_shared<std::vector<uint8_t>>(verbs::kGrhBytes + wire::kMadBytes);
  mad.header.write(message->data(), wire::kMadBytes);
  std::memcpy(message->data() + verbs::kGrhBytes, &mad.mad, sizeof mad.mad);
  ipc::RecvEntry entry{};
  entry.src_qpn = wire::kGsiQpn;
  entry.opcode = static_cast<uint8_t>(verbs::Opcode::kSend);
  entry.flags = ipc::kRecvGrh;
  entry.sl = mad.header.kind();
  if (!receive_message(qp, message, entry)) return false;
  qp.context->device->counters.traffic.port.receive(wire::kMadBytes);
  return true;
}

}  // namespace vrdma::transport
