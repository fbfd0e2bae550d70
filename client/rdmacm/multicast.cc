// Multicast groups by address: the daemon supplies a group's parameters, and the library attaches
// the queue pair. As in the kernel for RoCE v2, an IPv4 group is its address mapped into IPv6.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"

namespace vrdma::client {

namespace {

std::vector<Group>::iterator find(Id* id, uint32_t token) {
  return std::find_if(id->groups.begin(), id->groups.end(),
                      [token](const Group& group) { return group.token == token; });
}

int join(Id* id, const sockaddr* address, bool receives, void* context) {
  Group group;
  if (address == nullptr || !to_address(address, &group.address)) return answer(EINVAL);
  group.address.port = 0;
  group.receives = receives;
  group.context = context;
  {
    const std::lock_guard lock(objects_mutex());
    group.token = ++id->joins;
    id->groups.push_back(group);
  }
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kJoin;
  request.handle = id->handle;
  request.remote = group.address;
  request.value = group.token;
  if (const int error = id->link->call(request, &reply); error != 0) {
    const std::lock_guard lock(objects_mutex());
    id->groups.erase(find(id, group.token));
    return answer(error);
  }
  return complete(id);
}

int leave(Id* id, const sockaddr* address) {
  ipc::CmAddress wanted;
  if (address == nullptr || !to_address(address, &wanted)) return answer(EINVAL);
  Group group;
  {
    const std::lock_guard lock(objects_mutex());
    const auto it = std::find_if(id->groups.begin(), id->groups.end(), [&](const Group& each) {
      return std::memcmp(each.address.gid, wanted.gid, sizeof wanted.gid) == 0;
    });
    if (it == id->groups.end()) return answer(EADDRNOTAVAIL);
    group = *it;
    id->groups.erase(it);
  }
  if (!group.attached || id->base.qp == nullptr) return 0;
  ibv_gid gid;
  std::memcpy(&gid, group.address.gid, sizeof gid);
  return answer(ibv_detach_mcast(id->base.qp, &gid, 0));
}

}  // namespace

void on_joined(Id* id, const ipc::CmEventMessage& message, CmEvent* event) {
  {
    const std::lock_guard lock(objects_mutex());
    const auto group = find(id, message.token);
    if (group == id->groups.end()) return;  // the program has left it
    event->base.param.ud.private_data = group->context;
    if (id->base.qp == nullptr || !group->receives) return;
  }
  ibv_gid gid;
  std::memcpy(&gid, message.where.remote.gid, sizeof gid);
  const int error = ibv_attach_mcast(id->base.qp, &gid, 0);
  if (error != 0) {
    event->base.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    event->base.status = -error;
    return;
  }
  {
    const std::lock_guard lock(objects_mutex());
    const auto group = find(id, message.token);
    if (group != id->groups.end()) {
      group->attached = true;
      return;
    }
  }
  (void)ibv_detach_mcast(id->base.qp, &gid, 0);  // the program has left it meanwhile
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) try {
  VRDMA_PASS_ON(-1, rdma_join_multicast, id, addr, context)
  return join(Id::of(id), addr, true, context);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attr,
                                        void* context) try {
  VRDMA_PASS_ON(-1, rdma_join_multicast_ex, id, attr, context)
  constexpr uint32_t kNeeded = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) return answer(ENOTSUP);
  if ((attr->comp_mask & kNeeded) != kNeeded || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
    return answer(EINVAL);
  const bool receives = attr->join_flags != RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  return join(Id::of(id), attr->addr, receives, context);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) try {
  VRDMA_PASS_ON(-1, rdma_leave_multicast, id, addr)
  return leave(Id::of(id), addr);
}
VRDMA_OR_ENOMEM(-1)
