// Queue pairs on ids, with the completion queues and shared receive queues that come with them.
#include <fcntl.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstring>

#include "client/rdmacm/objects.h"
#include "client/verbs/export.h"

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

// As queue_pair_attributes(), without asking for what is known.
int known_attributes(Id* id, ibv_qp_attr* attr, int* mask) {
  const size_t which = attr->qp_state == IBV_QPS_INIT ? 0 : attr->qp_state == IBV_QPS_RTR ? 1 : 2;
  const ibv_qp_state state = attr->qp_state;
  if (id->known.masks[which] == 0) return queue_pair_attributes(id, attr, mask);
  to_ibv(id->known.attributes, attr);
  attr->qp_state = state;
  *mask = static_cast<int>(id->known.masks[which]);
  return 0;
}

// The attributes that the id has for a state, changed by `change`, into its queue pair.
template <class Change>
int move(Id* id, ibv_qp_state state, Change change) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = state;
  if (known_attributes(id, &attr, &mask) != 0) return -1;
  change(attr, mask);
  return answer(ibv_modify_qp(id->base.qp, &attr, mask));
}

int move(Id* id, ibv_qp_state state) {
  return move(id, state, [](ibv_qp_attr&, int&) {});
}

// INIT before there is a peer, the same for all (qp_attributes() in qp1mux/cm_id.cc); rights to
// READ follow with RTR.
int prepare(Id* id) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = RDMA_UDP_QKEY;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const bool datagram = id->base.qp->qp_type == IBV_QPT_UD;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                   (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
  if (const int error = ibv_modify_qp(id->base.qp, &attr, mask); error != 0) return answer(error);
  if (!datagram) return 0;
  if (move(id, IBV_QPS_RTR) != 0) return -1;
  return move(id, IBV_QPS_RTS);
}

int create_queue(Id* id, uint32_t entries, ibv_comp_channel** channel, ibv_cq** cq) {
  *channel = ibv_create_comp_channel(id->base.verbs);
  if (*channel == nullptr) return -1;
  *cq = ibv_create_cq(id->base.verbs, static_cast<int>(entries), &id->base, *channel, 0);
  return *cq != nullptr ? 0 : -1;
}

// An SRQ of XRC still needs its own when the queue pair goes.
void destroy_queues(rdma_cm_id* id) {
  if (id->qp != nullptr || (id->srq != nullptr && id->qp_type == IBV_QPT_XRC_RECV)) return;
  for (auto* cq : {&id->recv_cq, &id->send_cq})
    if (*cq != nullptr) ibv_destroy_cq(std::exchange(*cq, nullptr));
  for (auto* channel : {&id->recv_cq_channel, &id->send_cq_channel})
    if (*channel != nullptr) ibv_destroy_comp_channel(std::exchange(*channel, nullptr));
}

// The domain of XRC that queues on ids have if the program names none: the vdevice's, for good.
ibv_xrcd* domain_of(Id* id) {
  const std::lock_guard lock(objects_mutex());
  if (id->device->xrcd == nullptr) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    id->device->xrcd = ibv_open_xrcd(id->base.verbs, &attr);
  }
  return id->device->xrcd;
}

// The same member in the attributes of queue pairs and of SRQs.
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
    return answer(why);
  };
  if (attr->recv_cq == nullptr && base.recv_cq == nullptr && attr->cap.max_recv_wr != 0 &&
      create_queue(id, attr->cap.max_recv_wr, &base.recv_cq_channel, &base.recv_cq) != 0)
    return failed();
  if (attr->send_cq == nullptr && base.send_cq == nullptr && attr->cap.max_send_wr != 0 &&
      create_queue(id, attr->cap.max_send_wr, &base.send_cq_channel, &base.send_cq) != 0)
    return failed();
  // A queue without work requests still needs one to complete them.
  if (attr->send_cq == nullptr) attr->send_cq = base.send_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = base.recv_cq;
  if (attr->send_cq == nullptr) attr->send_cq = attr->recv_cq;
  if (attr->recv_cq == nullptr) attr->recv_cq = attr->send_cq;
  if (base.srq != nullptr && attr->srq == nullptr) attr->srq = base.srq;
  ibv_qp* qp = ibv_create_qp_ex(base.verbs, attr);
  if (qp == nullptr) return failed();
  base.qp = qp;
  if (prepare(id) != 0) {
    const int why = errno;
    ibv_destroy_qp(std::exchange(base.qp, nullptr));
    errno = why;
    return failed();
  }
  if (qp->pd != nullptr) base.pd = qp->pd;  // a target has none
  return 0;
}

int create_shared_queue(Id* id, ibv_srq_init_attr_ex* attr) {
  rdma_cm_id& base = id->base;
  if (base.srq != nullptr || base.verbs == nullptr) return answer(EINVAL);
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd == nullptr) {
    attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attr->pd = base.pd;
  }
  if (attr->srq_type == IBV_SRQT_XRC) {
    if (!set_domain(id, attr, IBV_SRQ_INIT_ATTR_XRCD)) return -1;
    if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr->cq == nullptr) {
      if (base.recv_cq == nullptr &&
          create_queue(id, attr->attr.max_wr, &base.recv_cq_channel, &base.recv_cq) != 0)
        return -1;
      attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
      attr->cq = base.recv_cq;
    }
  }
  ibv_srq* srq = ibv_create_srq_ex(base.verbs, attr);
  if (srq == nullptr) return -1;
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

// The access rights of INIT are set once more: they depend on what the peers agreed on since.
int connect_queue_pair(Id* id, uint8_t responder_resources, uint8_t initiator_depth) {
  ibv_qp_attr init{};
  int init_mask = 0;
  init.qp_state = IBV_QPS_INIT;
  if (known_attributes(id, &init, &init_mask) != 0) return -1;
  if (move(id, IBV_QPS_RTR, [&](ibv_qp_attr& attr, int& mask) {
        if (responder_resources != RDMA_MAX_RESP_RES) attr.max_dest_rd_atomic = responder_resources;
        attr.qp_access_flags = init.qp_access_flags;
        mask |= init_mask & IBV_QP_ACCESS_FLAGS;
      }) != 0)
    return -1;
  return move(id, IBV_QPS_RTS, [&](ibv_qp_attr& attr, int&) {
    if (initiator_depth != RDMA_MAX_INIT_DEPTH) attr.max_rd_atomic = initiator_depth;
  });
}

int fail_queue_pair(Id* id) {
  if (id->base.qp == nullptr || id->is_datagram()) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return answer(ibv_modify_qp(id->base.qp, &attr, IBV_QP_STATE));
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  VRDMA_PASS_ON(-1, rdma_create_qp_ex, id, attr)
  return create_queue_pair(Id::of(id), attr);
}

VRDMA_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  VRDMA_PASS_ON(-1, rdma_create_qp, id, pd, attr)
  ibv_qp_init_attr_ex extended{};
  std::memcpy(&extended, attr, sizeof *attr);
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd != nullptr ? pd : id->pd;
  const int result = create_queue_pair(Id::of(id), &extended);
  std::memcpy(attr, &extended, sizeof *attr);
  return result;
}

VRDMA_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  VRDMA_PASS_ON(, rdma_destroy_qp, id)
  if (id->qp != nullptr) ibv_destroy_qp(std::exchange(id->qp, nullptr));
  destroy_queues(id);
}

VRDMA_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  VRDMA_PASS_ON(-1, rdma_create_srq_ex, id, attr)
  return create_shared_queue(Id::of(id), attr);
}

VRDMA_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
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

VRDMA_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  VRDMA_PASS_ON(, rdma_destroy_srq, id)
  if (id->srq != nullptr) ibv_destroy_srq(std::exchange(id->srq, nullptr));
  destroy_queues(id);
}

VRDMA_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  VRDMA_PASS_ON(-1, rdma_init_qp_attr, id, qp_attr, qp_attr_mask)
  return queue_pair_attributes(Id::of(id), qp_attr, qp_attr_mask);
}
