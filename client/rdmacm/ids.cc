// Ids: lifetime, addresses, options and connecting.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"
#include "core/wire/cm.h"

namespace vrdma::client {

Id* make_id(std::shared_ptr<CmLink> link, uint32_t handle, rdma_event_channel* channel,
            void* context, rdma_port_space space, ibv_qp_type type) {
  auto id = std::make_unique<Id>();
  id->link = std::move(link);
  id->handle = handle;
  id->base.channel = channel;
  id->base.context = context;
  id->base.ps = space;
  id->base.qp_type = type;
  const std::lock_guard lock(objects_mutex());
  id->link->ids.emplace(handle, id.get());
  return id.release();
}

int create_id(rdma_event_channel* given, rdma_cm_id** made, void* context, rdma_port_space space,
              ibv_qp_type type) {
  // The port spaces that the daemon supports (vrdmad/cm/session.cc).
  if (space != RDMA_PS_TCP && space != RDMA_PS_UDP && space != RDMA_PS_IB)
    return answer(EOPNOTSUPP);
  rdma_event_channel* channel = given != nullptr ? given : create_channel();
  if (channel == nullptr) return -1;
  const auto link = Channel::of(channel)->source->link;
  const uint32_t handle =
      link->create_id(Channel::of(channel)->source->handle, static_cast<uint32_t>(space),
                      static_cast<uint32_t>(type));
  Id* id = make_id(link, handle, channel, context, space, type);
  id->sync = given == nullptr;
  *made = &id->base;
  return 0;
}

// Waits until the program has acknowledged all events of the id. Those that it has not read go, as
// in the kernel (ucma_cleanup_ctx_events() in ucma.c): a channel that was readable because of them
// would make it wait without end.
void free_id(Id* id) {
  // The daemon sends no event of the id after its answer.
  (void)id->link->call(ipc::CmCall::kDestroyId, id->handle);
  if (!id->sync && id->link->is_own())
    drop_events(*Channel::of(id->base.channel)->source, id->handle);
  if (id->base.event != nullptr) acknowledge(std::exchange(id->base.event, nullptr));
  {
    std::unique_lock lock(objects_mutex());
    id->link->ids.erase(id->handle);
    acknowledgement().wait(lock, [&] { return id->acknowledged == id->reported; });
  }
  if (id->sync) destroy_channel(id->base.channel);
  leave_device(id);
  delete id;
}

int simple_call(Id* id, ipc::CmCall call, bool succeeds) {
  return answer(succeeds ? id->link->tell(call, id->handle) : id->link->call(call, id->handle));
}

namespace {

int located_call(Id* id, ipc::CmRequest& request) {
  ipc::CmReply reply;
  request.handle = id->handle;
  if (const int error = id->link->call(request, &reply); error != 0) return answer(error);
  return answer(settle(id, reply.where));
}

int set_data(ipc::CmParam* param, const void* data, size_t length) {
  if (length > sizeof param->data) return EINVAL;
  if (length > 0) std::memcpy(param->data, data, length);
  param->length = static_cast<uint8_t>(length);
  return 0;
}

// If the id has a queue pair, the program's qp_num and srq are ignored.
int fill(const Id& id, const rdma_conn_param* from, ipc::CmParam* to) {
  to->responder_resources = id.responder_resources;
  to->initiator_depth = id.initiator_depth;
  to->retry_count = from != nullptr ? from->retry_count : 7;
  to->rnr_retry_count = from != nullptr ? from->rnr_retry_count : 7;
  to->flow_control = from != nullptr ? from->flow_control : 1;
  if (id.base.qp != nullptr) {
    to->qpn = id.base.qp->qp_num;
    to->srq = id.base.qp->srq != nullptr ? 1 : 0;
  } else if (from != nullptr) {
    to->qpn = from->qp_num;
    to->srq = from->srq;
  }
  if (from != nullptr && from->private_data != nullptr && from->private_data_len != 0)
    return set_data(to, from->private_data, from->private_data_len);
  return set_data(to, id.connect_data.data(), id.connect_data.size());
}

int do_connect(Id* id, const rdma_conn_param* param) {
  if (id->device == nullptr) return answer(EINVAL);
  const CmDevice& device = *id->device;
  // Defaults, if the program passes the RDMA_MAX_* constants or no parameters.
  id->responder_resources = device.max_responder_resources;
  id->initiator_depth = device.max_initiator_depth;
  if (param != nullptr && !id->is_datagram()) {
    if (param->responder_resources != RDMA_MAX_RESP_RES) {
      if (param->responder_resources > device.max_responder_resources) return answer(EINVAL);
      id->responder_resources = param->responder_resources;
    }
    if (param->initiator_depth != RDMA_MAX_INIT_DEPTH) {
      if (param->initiator_depth > device.max_initiator_depth) return answer(EINVAL);
      id->initiator_depth = param->initiator_depth;
    }
  }
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kConnect;
  request.handle = id->handle;
  if (const int error = fill(*id, param, &request.param); error != 0) return answer(error);
  if (const int error = id->link->call(request, &reply); error != 0) return answer(error);
  return complete(id);
}

int do_accept(Id* id, const rdma_conn_param* param) {
  if (id->device == nullptr) return answer(EINVAL);
  const CmDevice& device = *id->device;
  if (param == nullptr || param->initiator_depth == RDMA_MAX_INIT_DEPTH)
    id->initiator_depth = std::min(id->initiator_depth, device.max_initiator_depth);
  else
    id->initiator_depth = param->initiator_depth;
  if (param == nullptr || param->responder_resources == RDMA_MAX_RESP_RES)
    id->responder_resources = std::min(id->responder_resources, device.max_responder_resources);
  else
    id->responder_resources = param->responder_resources;
  if (id->base.qp != nullptr && !id->is_datagram() &&
      connect_queue_pair(id, id->responder_resources, id->initiator_depth) != 0)
    return -1;
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kAccept;
  request.handle = id->handle;
  int error = fill(*id, param, &request.param);
  if (error == 0) error = id->link->call(request, &reply);
  if (error != 0) {
    (void)fail_queue_pair(id);
    return answer(error);
  }
  return id->is_datagram() ? 0 : complete(id);
}

int do_reject(Id* id, const void* data, uint8_t length, wire::RejectReason reason) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kReject;
  request.handle = id->handle;
  request.value = static_cast<uint32_t>(reason);
  if (const int error = set_data(&request.param, data, length); error != 0) return answer(error);
  return answer(id->link->call(request, &reply));
}

int do_set_option(Id* id, int level, int name, const void* value, size_t length) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kSetOption;
  request.handle = id->handle;
  if (level != RDMA_OPTION_ID) return answer(ENOSYS);
  const bool byte = name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT;
  if (length != (byte ? sizeof(uint8_t) : sizeof(int))) return answer(EINVAL);
  std::memcpy(&request.setting, value, length);  // either little-endian, or one byte and zeros
  if (byte) request.setting = *static_cast<const uint8_t*>(value);
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      request.value = static_cast<uint32_t>(ipc::CmOption::kTos);
      break;
    case RDMA_OPTION_ID_REUSEADDR:
      request.value = static_cast<uint32_t>(ipc::CmOption::kReuseAddress);
      break;
    case RDMA_OPTION_ID_AFONLY:
      request.value = static_cast<uint32_t>(ipc::CmOption::kFamilyOnly);
      break;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      request.value = static_cast<uint32_t>(ipc::CmOption::kAckTimeout);
      break;
    default:
      return answer(ENOSYS);
  }
  id->known = {};
  return answer(id->link->call(request, &reply));
}

}  // namespace
}  // namespace vrdma::client

using namespace vrdma;          // NOLINT: this part is nothing but the way from C
using namespace vrdma::client;  // NOLINT

VRDMA_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                rdma_port_space ps) try {
  VRDMA_PASS_ON(-1, rdma_create_id, channel, id, context, ps)
  return create_id(channel, id, context, ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_destroy_id(rdma_cm_id* id) try {
  VRDMA_PASS_ON(-1, rdma_destroy_id, id)
  free_id(Id::of(id));
  return 0;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) try {
  VRDMA_PASS_ON(-1, rdma_bind_addr, id, addr)
  ipc::CmRequest request;
  request.call = ipc::CmCall::kBind;
  if (addr == nullptr) return answer(EINVAL);
  if (!to_address(addr, &request.local)) return answer(EAFNOSUPPORT);
  id->route.addr.src_addr.sa_family = addr->sa_family;
  return located_call(Id::of(id), request);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr,
                                   int timeout_ms) try {
  VRDMA_PASS_ON(-1, rdma_resolve_addr, id, src_addr, dst_addr, timeout_ms)
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kResolveAddr;
  request.handle = Id::of(id)->handle;
  request.value = static_cast<uint32_t>(std::max(timeout_ms, 0));
  request.has_local = src_addr != nullptr ? 1 : 0;
  if (dst_addr == nullptr) return answer(EINVAL);
  if (!to_address(dst_addr, &request.remote)) return answer(EAFNOSUPPORT);
  if (src_addr != nullptr && !to_address(src_addr, &request.local)) return answer(EAFNOSUPPORT);
  if (const int error = Id::of(id)->link->call(request, &reply); error != 0) return answer(error);
  return complete(Id::of(id));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) try {
  VRDMA_PASS_ON(-1, rdma_resolve_route, id, timeout_ms)
  if (simple_call(Id::of(id), ipc::CmCall::kResolveRoute, Id::of(id)->resolved) != 0) return -1;
  Id::of(id)->resolved = false;
  return complete(Id::of(id));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_listen(rdma_cm_id* id, int backlog) try {
  VRDMA_PASS_ON(-1, rdma_listen, id, backlog)
  ipc::CmRequest request;
  request.call = ipc::CmCall::kListen;
  request.value = static_cast<uint32_t>(std::max(backlog, 0));
  return located_call(Id::of(id), request);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) try {
  VRDMA_PASS_ON(-1, rdma_connect, id, conn_param)
  return do_connect(Id::of(id), conn_param);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) try {
  VRDMA_PASS_ON(-1, rdma_accept, id, conn_param)
  return do_accept(Id::of(id), conn_param);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_establish(rdma_cm_id* id) try {
  VRDMA_PASS_ON(-1, rdma_establish, id)
  // With a queue pair on the id the library has done it already.
  if (id->qp != nullptr) return answer(EINVAL);
  return simple_call(Id::of(id), ipc::CmCall::kConfirm);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_reject(rdma_cm_id* id, const void* private_data,
                             uint8_t private_data_len) try {
  VRDMA_PASS_ON(-1, rdma_reject, id, private_data, private_data_len)
  return do_reject(Id::of(id), private_data, private_data_len, wire::RejectReason::kConsumer);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* private_data,
                                 uint8_t private_data_len) try {
  VRDMA_PASS_ON(-1, rdma_reject_ece, id, private_data, private_data_len)
  return do_reject(Id::of(id), private_data, private_data_len, wire::RejectReason::kVendorOption);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_disconnect(rdma_cm_id* id) try {
  VRDMA_PASS_ON(-1, rdma_disconnect, id)
  if (fail_queue_pair(Id::of(id)) != 0) return -1;
  if (simple_call(Id::of(id), ipc::CmCall::kDisconnect, Id::of(id)->established) != 0) return -1;
  return complete(Id::of(id));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) try {
  VRDMA_PASS_ON(-1, rdma_notify, id, event)
  if (event != IBV_EVENT_COMM_EST) return answer(EINVAL);
  return simple_call(Id::of(id), ipc::CmCall::kEstablish);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) try {
  VRDMA_PASS_ON(-1, rdma_migrate_id, id, channel)
  return migrate(Id::of(id), channel);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval,
                                 size_t optlen) try {
  VRDMA_PASS_ON(-1, rdma_set_option, id, level, optname, optval, optlen)
  return do_set_option(Id::of(id), level, optname, optval, optlen);
}
VRDMA_OR_ENOMEM(-1)
