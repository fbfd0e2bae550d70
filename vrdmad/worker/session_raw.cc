// Raw packet queue pairs of a session, and queue pair 1: which program gets one, and what it
// receives.
#include <algorithm>

#include "transport/raw/mad.h"
#include "vrdmad/worker/raw_gsi.h"
#include "vrdmad/worker/session_objects.h"

namespace vrdma::vrdmad {

using base::Fd;

namespace {

constexpr size_t kMaxFlows = 64;  // of a queue pair
// Of a vdevice. Each holds a descriptor of the daemon and a buffer of the kernel, which the quota
// does not count.
constexpr size_t kMaxRawQps = 64;

}  // namespace

bool SessionObjects::may_have_raw_packets() const {
  return vdevice_->permissions.has(provisioning::Permission::kRawPacket) &&
         vdevice_->device.mac.has_value();
}

// Who can make a packet socket in the vdevice's network namespace has CAP_NET_RAW there, which the
// kernel has checked. What is used is a socket of our own: what the caller keeps of his he may
// rebind, or give a ring that never ends. To a dead daemon the caller has shown one; since then the
// process has not changed.
base::Result<Fd> SessionObjects::packet_socket(Fds proof) {
  if (!may_have_raw_packets()) return base::fail(EOPNOTSUPP, "raw packets are not allowed");
  if (vdevice_->device.raw_qps.size() >= kMaxRawQps)
    return base::fail(ENOMEM, "the vdevice has too many queue pairs for raw packets");
  const uint64_t its = caller_->peer().netns_cookie;
  const intake::Verdict* shown = proof.only();
  const bool proven = forced_ != nullptr
                          ? packet_socket_shown_ && its == vdevice_->netns
                          : shown != nullptr && shown->kind == intake::Kind::kPacketSocket &&
                                shown->netns_cookie != 0 && shown->netns_cookie == its;
  if (!proven) return base::fail(EPERM, "no packet socket was shown");
  return caller_->packet_socket(vdevice_->device.ifindex);
}

// A vdevice has one, and one program at a time has that.
int SessionObjects::give_gsi(rdma::Qp& qp) {
  if (vdevice_->gsi == nullptr) return EOPNOTSUPP;  // as raw packets
  auto desk = vdevice_->gsi->open([&qp](const transport::AddressedMad& mad) {
    if (!transport::receive_mad(qp, mad)) ++qp.context->device->fabric->counters.datagrams_dropped;
  });
  if (desk == nullptr) return EBUSY;
  qp.sender = std::make_unique<transport::MadSender>(qp, vdevice_->lane, std::move(desk));
  qp.qpn = wire::kGsiQpn;
  return 0;
}

int SessionObjects::create_flow(const ipc::CreateFlowRequest& request, Answer* answer) {
  rdma::Qp* qp = context_->qps.find(request.qp);
  if (qp == nullptr || qp->frames == nullptr) return EINVAL;
  if (qp->flows.size() >= kMaxFlows) return ENOMEM;
  auto flow = std::make_unique<rdma::Flow>();
  flow->qp = qp;
  flow->match = request.match;
  const rdma::Flow* made = context_->flows.add(std::move(flow), wanted());
  qp->flows.push_back(made);
  if (auto changed = qp->frames->flows_changed(); !changed) {
    qp->flows.pop_back();
    context_->flows.remove(made->handle);
    return changed.error().code();
  }
  answer->reply.handle.handle = made->handle;
  return 0;
}

int SessionObjects::destroy_flow(uint32_t handle) {
  const rdma::Flow* flow = context_->flows.find(handle);
  if (flow == nullptr) return EINVAL;
  std::erase(flow->qp->flows, flow);
  (void)flow->qp->frames->flows_changed();
  context_->flows.remove(handle);
  return 0;
}

}  // namespace vrdma::vrdmad
