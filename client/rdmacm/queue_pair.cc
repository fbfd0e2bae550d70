// Queue pairs on ids, with their completion queues and shared receive queues.
#include <fcntl.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/objects.h"
#include "client/verbs/shortcuts.h"

namespace vrdma::client {

namespace {

void to_ibv(const verbs::QpAttributes& from, ibv_qp_attr* to) {
  to->qp_state = static_cast<ibv_qp_state>(from.state);
  to->path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  to->qkey = from.qkey;
  to->rq_psn = from.rq_psn;
  to->sq_psn = from.sq_psn;
  to->dest_qp_num = from.dest_qpn;
  to->qp_access_flags = from.access_flags;
  to->pkey_index = from.pkey_index;
  to->port_num = from.port_num;
  to->max_rd_atomic = from.max_rd_atomic;
  to->max_dest_rd_atomic = from.max_dest_rd_atomic;
  to->min_rnr_timer = from.min_rnr_timer;
  to->timeout = from.timeout;
  to->retry_cnt = from.retry_cnt;
  to->rnr_retry = from.rnr_retry;
  to->ah_attr = {};
  std::memcpy(&to->ah_attr.grh.dgid, from.av.dgid, 16);
  to->ah_attr.grh.sgid_index = from.av.sgid_index;
  to->ah_attr.grh.hop_limit = from.av.hop_limit;
  to->ah_attr.grh.traffic_class = from.av.traffic_class;
  to->ah_attr.is_global = from.av.is_global;
  to->ah_attr.port_num = from.av.port_num;
}

// queue_pair_attributes(), but uses the attributes that an event brought, if any.
int known_attributes(Id* id, ibv_qp_attr* attr, int* mask) {
  const size_t which = attr->qp_state == IBV_QPS_INIT ? 0 : attr->qp_state == IBV_QPS_RTR ? 1 : 2;
  const ibv_qp_state state = attr->qp_state;
  if (id->known.masks[which] == 0) return queue_pair_attributes(id, attr, mask);
  to_ibv(id->known.attributes, attr);
  attr->qp_state = state;
  *mask = static_cast<int>(id->known.masks[which]);
  return 0;
}

// The attributes of a state, and the mask that names them.
struct Step {
  explicit Step(ibv_qp_state state) { attr.qp_state = state; }
  ibv_qp_attr attr{};
  int mask = 0;
};

// To RTR and RTS. Except for the state, the two steps set different attributes.
int move_on(Id* id, const Step& rtr, const Step& rts) {
  ibv_qp* qp = id->base.qp;
  const Shortcuts* shortcuts = shortcuts_of(qp->context);
  if (shortcuts == nullptr) {
    ibv_qp_attr first = rtr.attr, second = rts.attr;
    if (const int error = ibv_modify_qp(qp, &first, rtr.mask); error != 0) return answer(error);
    return answer(ibv_modify_qp(qp, &second, rts.mask));
  }
  ibv_qp_attr both = rtr.attr;
  both.sq_psn = rts.attr.sq_psn;
  both.timeout = rts.attr.timeout;
  both.retry_cnt = rts.attr.retry_cnt;
  both.rnr_retry = rts.attr.rnr_retry;
  both.max_rd_atomic = rts.attr.max_rd_atomic;
  return answer(shortcuts->connect_qp(qp, both, rtr.mask, rts.mask));
}

// INIT before the peer is known, the same for all ids (qp_attributes() in qp1mux/cm_id.cc). RTR
// adds the rights for READ.
Step first_step(ibv_qp_type type) {
  Step init(IBV_QPS_INIT);
  init.attr.port_num = 1;
  init.attr.qkey = RDMA_UDP_QKEY;
  init.attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  init.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
              (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  return init;
}

// Creates a queue pair on the id, in INIT, or in RTS for datagrams. -1 and errno, or 0.
int make_queue_pair(Id* id, ibv_qp_init_attr_ex* attr) {
  rdma_cm_id& base = id->base;
  Step init = first_step(attr->qp_type);
  const Shortcuts* shortcuts = shortcuts_of(base.verbs);
  // An XRC target is created by another verb.
  const bool at_once = shortcuts != nullptr && attr->qp_type != IBV_QPT_XRC_RECV;
  base.qp = at_once ? shortcuts->create_qp(base.verbs, attr, init.attr, init.mask)
                    : ibv_create_qp_ex(base.verbs, attr);
  if (base.qp == nullptr) return -1;
  const auto prepare = [&] {
    if (!at_once)
      if (const int error = ibv_modify_qp(base.qp, &init.attr, init.mask); error != 0)
        return answer(error);
    if (base.qp->qp_type != IBV_QPT_UD) return 0;
    Step rtr(IBV_QPS_RTR), rts(IBV_QPS_RTS);
    for (Step* step : {&rtr, &rts})
      if (known_attributes(id, &step->attr, &step->mask) != 0) return -1;
    return move_on(id, rtr, rts);
  };
  if (prepare() == 0) return 0;
  const int why = errno;
  ibv_destroy_qp(std::exchange(base.qp, nullptr));
  return answer(why);
}

int create_queue(Id* id, uint32_t entries, ibv_comp_channel** channel, ibv_cq** cq) {
  *channel = ibv_create_comp_channel(id->base.verbs);
  if (*channel == nullptr) return -1;
  *cq = ibv_create_cq(id->base.verbs, static_cast<int>(entries), &id->base, *channel, 0);
  if (*cq != nullptr) return 0;
  const int why = errno;
  ibv_destroy_comp_channel(std::exchange(*channel, nullptr));
  return answer(why);
}

void destroy_queue(ibv_comp_channel** channel, ibv_cq** cq) {
  if (*cq != nullptr) ibv_destroy_cq(std::exchange(*cq, nullptr));
  if (*channel != nullptr) ibv_destroy_comp_channel(std::exchange(*channel, nullptr));
}

// An XRC SRQ still uses its CQ after the queue pair is destroyed.
void destroy_queues(rdma_cm_id* id) {
  if (id->qp != nullptr || (id->srq != nullptr && id->qp_type == IBV_QPT_XRC_RECV)) return;
  destroy_queue(&id->recv_cq_channel, &id->recv_cq);
  destroy_queue(&id->send_cq_channel, &id->send_cq);
}

// The XRC domain of ids whose program names none. The vdevice keeps it.
ibv_xrcd* domain_of(Id* id) {
  const std::lock_guard lock(opening());
  if (id->device->xrcd == nullptr) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    id->device->xrcd = ibv_open_xrcd(id->base.verbs, &attr);
  }
  return id->device->xrcd;
}

// ibv_qp_init_attr_ex and ibv_srq_init_attr_ex both have the members that this sets.
template <class Attributes>
bool set_domain(Id* id, Attributes* attr, uint32_t bit) {
  if ((attr->comp_mask & bit) != 0 && attr->xrcd != nullptr) return true;
  attr->comp_mask |= bit;
  attr->xrcd = domain_of(id);
  return attr->xrcd != nullptr;
}

int create_queue_pair(Id* id, ibv_qp_init_attr_ex* attr) {
  rdma_cm_id& base = id->base;
  if (base.qp != nullptr || base.verbs == nullptr) return answer(EINVAL);
  const ibv_qp_init_attr_ex given = *attr;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr->pd = base.pd;
  } else if (attr->pd->context != base.verbs) {
    return answer(EINVAL);
  }
  const bool target = base.qp_type == IBV_QPT_XRC_RECV;
  if (target && !set_domain(id, attr, IBV_QP_INIT_ATTR_XRCD)) return -1;
  const auto failed = [&] {
    const int why = errno;
    destroy_queues(&base);
    *attr = given;  // the program may try again with it
    return answer(why);
  };
  if (attr->recv_cq == nullptr && base.recv_cq == nullptr && attr->cap.max_recv_wr != 0 &&
      create_queue(id, attr->cap.max_recv_wr, &base.recv_cq_channel, &base.recv_cq) != 0)
    return failed();
  if (attr->send_cq == nullptr && base.send_cq == nullptr && attr->cap.max_send_wr != 0 &&
      create_queue(id, attr->cap.max_send_wr, &base.send_cq_channel, &base.send_cq) != 0)
    return failed();
  // A queue without work requests still needs a CQ.
  if (attr->send_cq == nullptr) attr->send_cq = base.send_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = base.recv_cq;
  if (attr->send_cq == nullptr) attr->send_cq = attr->recv_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = attr->send_cq;
  if (base.srq != nullptr && attr->srq == nullptr) attr->srq = base.srq;
  if (make_queue_pair(id, attr) != 0) return failed();
  if (base.qp->pd != nullptr) base.pd = base.qp->pd;  // an XRC target has none
  return 0;
}

int create_shared_queue(Id* id, ibv_srq_init_attr_ex* attr) {
  rdma_cm_id& base = id->base;
  if (base.srq != nullptr || base.verbs == nullptr) return answer(EINVAL);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = base.pd;
  }
  bool makes_queue = false;
  if (attr->srq_type == IBV_SRQT_XRC) {
    if (!set_domain(id, attr, IBV_SRQ_INIT_ATTR_XRCD)) return -1;
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr) {
      makes_queue = base.recv_cq == nullptr;
      if (makes_queue &&
          create_queue(id, attr->attr.max_wr, &base.recv_cq_channel, &base.recv_cq) != 0)
        return -1;
      attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
      attr->cq = base.recv_cq;
    }
  }
  ibv_srq* srq = ibv_create_srq_ex(base.verbs, attr);
  if (srq == nullptr) {
    const int why = errno;
    if (makes_queue) {
      attr->cq = nullptr;
      destroy_queue(&base.recv_cq_channel, &base.recv_cq);
    }
    return answer(why);
  }
  if (base.pd == nullptr) base.pd = attr->pd;
  base.srq = srq;
  return 0;
}

}  // namespace

int queue_pair_attributes(Id* id, ibv_qp_attr* attr, int* mask) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kQpAttributes;
  request.handle = id->handle;
  request.value = static_cast<uint32_t>(attr->qp_state);
  if (const int error = id->link->call(request, &reply); error != 0) return answer(error);
  to_ibv(reply.attributes, attr);
  *mask = static_cast<int>(reply.mask);
  return 0;
}

// Sets the access rights of INIT again, because they depend on what the peers have negotiated
// since.
int connect_queue_pair(Id* id, uint8_t responder_resources, uint8_t initiator_depth) {
  Step init(IBV_QPS_INIT), rtr(IBV_QPS_RTR), rts(IBV_QPS_RTS);
  for (Step* step : {&init, &rtr, &rts})
    if (known_attributes(id, &step->attr, &step->mask) != 0) return -1;
  if (responder_resources != RDMA_MAX_RESP_RES) rtr.attr.max_dest_rd_atomic = responder_resources;
  rtr.attr.qp_access_flags = init.attr.qp_access_flags;
  rtr.mask |= init.mask & IBV_QP_ACCESS_FLAGS;
  if (initiator_depth != RDMA_MAX_INIT_DEPTH) rts.attr.max_rd_atomic = initiator_depth;
  return move_on(id, rtr, rts);
}

int fail_queue_pair(Id* id) {
  ibv_qp* qp = id->base.qp;
  if (qp == nullptr || id->is_datagram()) return 0;
  if (const Shortcuts* shortcuts = shortcuts_of(qp->context); shortcuts != nullptr)
    return answer(shortcuts->fail_qp(qp));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return answer(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) try {
  VRDMA_PASS_ON(-1, rdma_create_qp_ex, id, attr)
  return create_queue_pair(Id::of(id), attr);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) try {
  VRDMA_PASS_ON(-1, rdma_create_qp, id, pd, attr)
  ibv_qp_init_attr_ex extended{};
  std::memcpy(&extended, attr, sizeof *attr);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd != nullptr ? pd : id->pd;
  const int result = create_queue_pair(Id::of(id), &extended);
  std::memcpy(attr, &extended, sizeof *attr);
  return result;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void rdma_destroy_qp(rdma_cm_id* id) try {
  VRDMA_PASS_ON(, rdma_destroy_qp, id)
  if (id->qp != nullptr) ibv_destroy_qp(std::exchange(id->qp, nullptr));
  destroy_queues(id);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) try {
  VRDMA_PASS_ON(-1, rdma_create_srq_ex, id, attr)
  return create_shared_queue(Id::of(id), attr);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) try {
  VRDMA_PASS_ON(-1, rdma_create_srq, id, pd, attr)
  ibv_srq_init_attr_ex extended{};
  std::memcpy(&extended, attr, sizeof *attr);
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  extended.pd = pd != nullptr ? pd : id->pd;
  const int result = create_shared_queue(Id::of(id), &extended);
  std::memcpy(attr, &extended, sizeof *attr);
  return result;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void rdma_destroy_srq(rdma_cm_id* id) try {
  VRDMA_PASS_ON(, rdma_destroy_srq, id)
  if (id->srq != nullptr) ibv_destroy_srq(std::exchange(id->srq, nullptr));
  destroy_queues(id);
}
VRDMA_OR_ENOMEM()

VRDMA_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) try {
  VRDMA_PASS_ON(-1, rdma_init_qp_attr, id, qp_attr, qp_attr_mask)
  return queue_pair_attributes(Id::of(id), qp_attr, qp_attr_mask);
}
VRDMA_OR_ENOMEM(-1)
