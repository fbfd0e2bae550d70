// What a program may ask about its vdevice.
#include <algorithm>

#include "core/verbs/mtu.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

namespace {

constexpr uint32_t kPortDown = 1, kPortActive = 4;  // ibv_port_state

// Adapters have tables of one length, in which entries come and go.
constexpr size_t kGidTable = 16;
uint32_t table_length(const rdma::Device& device) {
  return static_cast<uint32_t>(std::max(kGidTable, device.gids.size()));
}

}  // namespace

int SessionObjects::query_device(Answer* answer) {
  const auto limit = [&](Kind kind) {
    return static_cast<uint32_t>(std::min<uint64_t>(vdevice_->ledger.limit(kind), INT32_MAX));
  };
  const verbs::Capabilities& capabilities = vdevice_->device.capabilities;
  auto& reply = answer->reply.device;
  reply.node_guid = vdevice_->device.node_guid;
  reply.max_mr_size = vdevice_->ledger.limit(Kind::kMrBytes);
  reply.max_qp = std::min(limit(Kind::kQp), ipc::kMaxQpSlots);
  reply.max_qp_wr = std::min({limit(Kind::kSendWr), limit(Kind::kRecvWr), ipc::kMaxQueueDepth});
  reply.max_sge = capabilities.max_sge;
  reply.max_cq = std::min(limit(Kind::kCq), ipc::kMaxCqSlots);
  reply.max_cqe = limit(Kind::kCqe);
  reply.max_mr = std::min(limit(Kind::kMr), ipc::kMaxKeys - 1);
  reply.max_pd = limit(Kind::kPd);
  reply.max_ah = limit(Kind::kAh);
  reply.max_srq = limit(Kind::kSrq);
  reply.max_srq_wr = std::min(limit(Kind::kRecvWr), ipc::kMaxQueueDepth);
  reply.max_mw = std::min(limit(Kind::kMw), ipc::kMaxKeys - 1);
  reply.max_rd_atomic = capabilities.max_rd_atomic;
  reply.max_mcast_grp = capabilities.max_mcast_groups;
  reply.max_mcast_qp_attach = capabilities.max_mcast_attach;
  reply.raw_packets = may_have_raw_packets() ? 1 : 0;
  return 0;
}

int SessionObjects::query_port(Answer* answer) {
  const rdma::Device& device = vdevice_->device;
  auto& reply = answer->reply.port;
  reply.state = device.port_active() ? kPortActive : kPortDown;
  reply.max_mtu = device.capabilities.max_mtu;
  reply.active_mtu = std::min<uint32_t>(verbs::mtu_code(device.roce_mtu()), reply.max_mtu);
  reply.gid_count = table_length(device);
  reply.ifindex = device.ifindex;
  return 0;
}

int SessionObjects::query_gids(const ipc::GidsRequest& request, Answer* answer) {
  const auto& gids = vdevice_->device.gids;
  auto& reply = answer->reply.gids;
  reply.total = static_cast<uint32_t>(gids.size());
  reply.ifindex = vdevice_->device.ifindex;
  reply.table = table_length(vdevice_->device);
  for (size_t i = request.first; i < gids.size() && reply.count < ipc::kGidsPerReply; ++i)
    std::copy(gids[i].bytes.begin(), gids[i].bytes.end(), reply.gids[reply.count++]);
  return 0;
}

}  // namespace vrdma::vrdmad
