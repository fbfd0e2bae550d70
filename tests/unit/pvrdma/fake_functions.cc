// The functions of libibverbs, on the fake.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tests/unit/pvrdma/fake_verbs.h"

// They are macros in the header.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_gid

using vrdma::fake::Cq;
using vrdma::fake::make_mr;
using vrdma::fake::Pd;
using vrdma::fake::Qp;
using vrdma::fake::Srq;
using vrdma::fake::Verbs;

namespace {

Verbs& fake() { return *Verbs::now; }

template <class Object, class Ibv>
Object* of(Ibv* ibv) {
  return reinterpret_cast<Object*>(ibv);
}

// What nobody has polled goes with a queue pair, and when it begins anew.
void forget_completions(const Qp* qp) {
  for (ibv_cq* const cq : {qp->init.send_cq, qp->init.recv_cq})
    std::erase_if(of<Cq>(cq)->ready, [&](const ibv_wc& wc) { return wc.qp_num == qp->ibv.qp_num; });
}

void drain(int fd) {
  uint64_t unused = 0;
  (void)!::read(fd, &unused, sizeof unused);
}

}  // namespace

namespace vrdma::fake {

ibv_mr* make_mr(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access, bool shown) {
  if (!Verbs::now->may_make()) return nullptr;
  auto* const mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = addr;
  mr->length = length;
  mr->lkey = mr->rkey =
      Verbs::now->add_region({reinterpret_cast<uint64_t>(addr), length, iova, access, shown});
  ++of<Pd>(pd)->users;
  return mr;
}

}  // namespace vrdma::fake

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  *count = 1;
  static ibv_device* list[2];
  list[0] = &fake().device;
  return list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
ibv_context* ibv_open_device(ibv_device*) { return &fake().context; }
int ibv_close_device(ibv_context*) { return 0; }

int ibv_query_device(ibv_context*, ibv_device_attr* attr) {
  *attr = {};
  attr->max_mr_size = UINT64_MAX;
  attr->max_qp = attr->max_cq = attr->max_srq = 1000;
  attr->max_mr = attr->max_pd = attr->max_ah = 1000;
  attr->max_qp_wr = attr->max_cqe = attr->max_srq_wr = 4096;
  attr->max_sge = attr->max_srq_sge = 16;
  attr->max_qp_rd_atom = 16;
  attr->atomic_cap = IBV_ATOMIC_HCA;
  return 0;
}
int ibv_query_port(ibv_context*, uint8_t, _compat_ibv_port_attr* compat) {
  auto* const attr = reinterpret_cast<ibv_port_attr*>(compat);
  attr->state = IBV_PORT_ACTIVE;
  attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
  attr->gid_tbl_len = 16;
  return 0;
}
int ibv_query_gid(ibv_context*, uint8_t, int index, ibv_gid* gid) {
  *gid = {};
  if (static_cast<size_t>(index) < fake().gids.size())
    *gid = fake().gids[static_cast<size_t>(index)];
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) { return &fake().channel; }
int ibv_destroy_comp_channel(ibv_comp_channel*) { return 0; }
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  if (fake().told.empty()) {
    drain(channel->fd);
    return -1;
  }
  *cq = fake().told.front();
  *context = (*cq)->cq_context;
  fake().told.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned int) {}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  if (fake().events.empty()) {
    drain(context->async_fd);
    return -1;
  }
  *event = fake().events.front();
  fake().events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!fake().may_make()) return nullptr;
  auto* const pd = new Pd;
  pd->ibv.context = context;
  return &pd->ibv;
}
int ibv_dealloc_pd(ibv_pd* ibv) {
  if (of<Pd>(ibv)->users != 0) return EBUSY;
  delete of<Pd>(ibv);
  fake().unmake();
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return make_mr(pd, addr, length, reinterpret_cast<uint64_t>(addr), access, false);
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return make_mr(pd, addr, length, iova, access, false);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                         unsigned int access) {
  return make_mr(pd, addr, length, iova, static_cast<int>(access), false);
}
int ibv_dereg_mr(ibv_mr* mr) {
  fake().remove_region(mr->lkey);
  --of<Pd>(mr->pd)->users;
  delete mr;
  fake().unmake();
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* its, ibv_comp_channel* channel, int) {
  if (!fake().may_make()) return nullptr;
  auto* const cq = new Cq;
  cq->ibv.context = context;
  cq->ibv.channel = channel;
  cq->ibv.cq_context = its;
  cq->ibv.cqe = cqe;
  return &cq->ibv;
}
int ibv_destroy_cq(ibv_cq* ibv) {
  if (of<Cq>(ibv)->users != 0) return EBUSY;
  std::erase(fake().told, ibv);
  delete of<Cq>(ibv);
  fake().unmake();
  return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (!fake().may_make()) return nullptr;
  auto* const srq = new Srq;
  srq->ibv.context = pd->context;
  srq->ibv.pd = pd;
  srq->ibv.srq_context = init->srq_context;
  srq->max_wr = init->attr.max_wr;
  srq->attr = init->attr;
  ++of<Pd>(pd)->users;
  return &srq->ibv;
}
int ibv_modify_srq(ibv_srq* ibv, ibv_srq_attr* attr, int) {
  of<Srq>(ibv)->attr.srq_limit = attr->srq_limit;
  return 0;
}
int ibv_query_srq(ibv_srq* ibv, ibv_srq_attr* attr) {
  *attr = of<Srq>(ibv)->attr;
  return 0;
}
int ibv_destroy_srq(ibv_srq* ibv) {
  if (of<Srq>(ibv)->users != 0) return EBUSY;
  --of<Pd>(ibv->pd)->users;
  delete of<Srq>(ibv);
  fake().unmake();
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (!fake().may_make()) return nullptr;
  auto* const qp = new Qp;
  qp->init = *init;
  qp->ibv.context = pd->context;
  qp->ibv.pd = pd;
  qp->ibv.qp_context = init->qp_context;
  qp->ibv.qp_type = init->qp_type;
  qp->ibv.qp_num = ++fake().next_qpn;
  qp->attr.qp_state = IBV_QPS_RESET;
  fake().qps[qp->ibv.qp_num] = qp;
  ++of<Pd>(pd)->users;
  ++of<Cq>(init->send_cq)->users;
  ++of<Cq>(init->recv_cq)->users;
  if (init->srq != nullptr) ++of<Srq>(init->srq)->users;
  return &qp->ibv;
}
int ibv_modify_qp(ibv_qp* ibv, ibv_qp_attr* attr, int mask) {
  Qp* const qp = of<Qp>(ibv);
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr->qp_state > IBV_QPS_ERR) return EINVAL;
    const bool goes_on = attr->qp_state == IBV_QPS_RESET || attr->qp_state == IBV_QPS_ERR ||
                         attr->qp_state == qp->attr.qp_state + 1;
    if (!goes_on) return EINVAL;
    qp->attr.qp_state = attr->qp_state;
    if (attr->qp_state == IBV_QPS_RESET) {
      qp->sends.clear();
      qp->receives.clear();
      forget_completions(qp);
    }
    if (attr->qp_state == IBV_QPS_ERR) fake().flush(qp);
  }
  if ((mask & IBV_QP_DEST_QPN) != 0) qp->attr.dest_qp_num = attr->dest_qp_num;
  if ((mask & IBV_QP_AV) != 0) qp->attr.ah_attr = attr->ah_attr;
  return 0;
}
int ibv_query_qp(ibv_qp* ibv, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  *attr = of<Qp>(ibv)->attr;
  *init = of<Qp>(ibv)->init;
  return 0;
}
int ibv_destroy_qp(ibv_qp* ibv) {
  Qp* const qp = of<Qp>(ibv);
  forget_completions(qp);
  --of<Cq>(qp->init.send_cq)->users;
  --of<Cq>(qp->init.recv_cq)->users;
  if (qp->init.srq != nullptr) --of<Srq>(qp->init.srq)->users;
  --of<Pd>(ibv->pd)->users;
  fake().qps.erase(ibv->qp_num);
  delete qp;
  fake().unmake();
  return 0;
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr*) {
  if (fake().handles_ >= fake().most_address_handles) {
    errno = ENOMEM;
    return nullptr;
  }
  ++fake().handles_;
  ++of<Pd>(pd)->users;
  auto* const ah = new ibv_ah{};
  ah->pd = pd;
  return ah;
}
int ibv_destroy_ah(ibv_ah* ah) {
  --fake().handles_;
  --of<Pd>(ah->pd)->users;
  delete ah;
  return 0;
}

}  // extern "C"
