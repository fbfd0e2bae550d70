#include "transport/shm/datagram.h"

#include <cstring>

#include "core/wire/ip.h"

namespace vrdma::transport {

using rdma::Outcome;
using verbs::kGrhBytes;
using verbs::WcStatus;

namespace {

constexpr uint32_t kUdpBthDethIcrc = 8 + 12 + 8 + 4;
// Of one queue pair, on their way into memory that has to be reached; more are lost, as where the
// buffer of a network card is full.
constexpr uint32_t kMaxReceiving = 256;

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

void DatagramPath::abandon() {
  reading_ = ready_ = failed_ = false;
  message_ = nullptr;
  alive_ = std::make_shared<int>(0);
}

Progress DatagramPath::execute(rdma::WorkRequest& request) {
  if (reading_) return {Progress::Kind::kPending};
  if (!ready_ && !failed_) {
    const Progress progress = collect(request);
    if (!ready_) return progress;
  }
  if (failed_) {
    abandon();
    return done(WcStatus::kLocalProtectionError);
  }
  send(request);
  abandon();
  return done(WcStatus::kSuccess);
}

// Brings the payload together. ready_, or what to report.
Progress DatagramPath::collect(rdma::WorkRequest& request) {
  const auto opcode = static_cast<verbs::Opcode>(request.wqe.opcode);
  const rdma::Device& device = *qp_.context->device;
  if (!verbs::is_send(opcode) || opcode == verbs::Opcode::kSendWithInvalidate ||
      request.wqe.ud.sgid_index >= device.gids.size())
    return done(WcStatus::kLocalQpOperationError);
  source_ = device.gids[request.wqe.ud.sgid_index];
  rdma::PieceList pieces;
  uint64_t length = 0;
  bool reached = false;
  if ((request.wqe.flags & ipc::kInline) != 0) {
    length = request.wqe.inline_length;
    pieces.count = length > 0 ? 1 : 0;
    pieces.pieces[0] = {request.inline_data, 0, length, false};
  } else {
    const Outcome outcome = rdma::gather(request.sges, request.wqe.num_sge, qp_.memory(),
                                         qp_.pd->handle, 0, &pieces, &length, &reached);
    if (outcome != Outcome::kDone) return done(WcStatus::kLocalProtectionError);
  }
  if (length > device.roce_mtu()) return done(WcStatus::kLocalLengthError);
  message_ = std::make_shared<std::vector<uint8_t>>(kGrhBytes + length);
  rdma::Reach::Job job;
  job.buffer = message_;
  uint64_t offset = kGrhBytes;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    if (piece.reached) {
      job.parts.push_back(rdma::part_of(piece, offset, *qp_.context->process));
    } else if (!rdma::read_piece(piece, message_->data() + offset)) {
      return done(WcStatus::kLocalProtectionError);
    }
    offset += piece.length;
  }
  if (job.parts.empty()) {
    ready_ = true;
    return {};
  }
  reading_ = true;
  job.done = [this, alive = std::weak_ptr(alive_)](bool ok) {
    if (alive.expired()) return;
    reading_ = false;
    ready_ = ok;
    failed_ = !ok;
    queue_.resume();
  };
  qp_.context->process->reach()->submit(std::move(job));
  return {Progress::Kind::kPending};
}

void DatagramPath::send(const rdma::WorkRequest& request) {
  rdma::Fabric& fabric = *qp_.context->device->fabric;
  verbs::Gid destination;
  std::memcpy(destination.bytes.data(), request.wqe.ud.dgid, destination.bytes.size());
  write_header(message_->data(), source_, destination, request.wqe, message_->size() - kGrhBytes);
  if (!destination.is_multicast()) {
    rdma::Qp* target = fabric.find(destination, request.wqe.ud.qpn);
    if (target == nullptr)
      ++fabric.counters.datagrams_dropped;
    else
      deliver(*target, request, destination);
    return;
  }
  const auto* members = fabric.members(destination);
  if (members == nullptr) return;
  for (rdma::Qp* member : *members)
    if (member != &qp_) deliver(*member, request, destination);
}

void DatagramPath::deliver(rdma::Qp& target, const rdma::WorkRequest& request,
                           const verbs::Gid& destination) {
  auto& dropped = qp_.context->device->fabric->counters.datagrams_dropped;
  // The high bit of the Q_Key in a request stands for that of the sending queue pair (IBTA 10.2.5).
  const uint32_t qkey =
      (request.wqe.ud.qkey >> 31) != 0 ? qp_.attributes.qkey : request.wqe.ud.qkey;
  if (target.type != verbs::QpType::kUd || !target.can_receive() ||
      target.receiving >= kMaxReceiving ||
      (target.attributes.qkey != qkey && !destination.is_multicast())) {
    ++dropped;
    return;
  }
  rdma::Receive receive;
  const Outcome fetched =
      target.srq != nullptr
          ? target.srq->claim(&receive)
          : rdma::fetch_receive(target.receives, target.inbox_head + target.receiving, &receive);
  if (fetched == Outcome::kPeerBroken && target.context->on_corrupt) target.context->on_corrupt();
  if (fetched != Outcome::kDone) {
    ++dropped;
    return;
  }
  ipc::RecvEntry entry{};
  entry.slot = receive.slot;
  entry.byte_len = static_cast<uint32_t>(message_->size());
  entry.imm = request.wqe.imm;
  entry.src_qpn = qp_.qpn;
  entry.opcode = request.wqe.opcode;
  entry.flags = static_cast<uint8_t>(
      ipc::kRecvGrh | ((request.wqe.flags & ipc::kSolicited) != 0 ? ipc::kRecvSolicited : 0));
  entry.sl = header_kind(source_);

  rdma::PieceList pieces;
  bool reached = false;
  const Outcome outcome = rdma::scatter(receive, target.memory(), target.receive_pd().handle,
                                        message_->size(), &pieces, &reached);
  if (outcome != Outcome::kDone) {
    // A sender must not be able to break the receiver with a long datagram: it is dropped.
    if (target.srq != nullptr) target.srq->give_back(receive.slot);
    ++dropped;
    return;
  }
  rdma::Process& process = *target.context->process;
  rdma::Reach::Job job;
  job.write = true;
  job.buffer = message_;
  uint64_t offset = 0;
  for (uint32_t i = 0; i < pieces.count; ++i) {
    const rdma::Piece& piece = pieces.pieces[i];
    if (piece.reached)
      job.parts.push_back(rdma::part_of(piece, offset, process));
    else if (!rdma::write_piece(message_->data() + offset, piece))
      entry.status = static_cast<uint8_t>(WcStatus::kLocalProtectionError);
    offset += piece.length;
  }
  if (job.parts.empty() && target.receiving == 0) {
    target.deliver(entry);
    return;
  }
  // In hand until its memory is written. A process's jobs run in order, so those behind it wait
  // there too, also with nothing to write.
  ++target.receiving;
  job.done = [context = target.context, handle = target.handle, alive = std::weak_ptr(target.alive),
              receive, entry, srq = target.srq,
              srq_alive = target.srq != nullptr ? std::weak_ptr(target.srq->alive)
                                                : std::weak_ptr<int>()](bool ok) mutable {
    rdma::Qp* qp = alive.expired() ? nullptr : context->qps.find(handle);
    const auto give_back = [&] {
      if (!srq_alive.expired()) srq->give_back(receive.slot);
    };
    if (qp == nullptr) return give_back();
    --qp->receiving;
    if (!qp->can_receive()) {  // in an error state the program flushes its receives itself
      return give_back();
    }
    if (!ok) entry.status = static_cast<uint8_t>(WcStatus::kLocalProtectionError);
    qp->deliver(entry);
  };
  process.reach()->submit(std::move(job));
}

}  // namespace vrdma::transport
