// Exported verbs on the objects of a context. Each first checks whether the object is virtual.
#include <cerrno>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/verbs/events.h"
#include "client/verbs/real.h"
#include "client/verbs/virtual.h"

using namespace vrdma::client;  // NOLINT: this file is nothing but the way from C to this namespace

// ---- Protection domains -----------------------------------------------------------------------

VRDMA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return is_virtual(context) ? guarded<alloc_pd>(context) : real_ibv_alloc_pd(context);
}

VRDMA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return is_virtual(pd->context) ? guarded<dealloc_pd>(pd) : real_ibv_dealloc_pd(pd);
}

VRDMA_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t pd_handle) {
  return is_virtual(context) ? guarded<import_pd>(context, pd_handle)
                             : real_ibv_import_pd(context, pd_handle);
}

VRDMA_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  if (is_virtual(pd->context))
    guarded<unimport_pd>(pd);
  else
    real_ibv_unimport_pd(pd);
}

// ---- Memory regions ---------------------------------------------------------------------------

// Optional access flags are hints, which a virtual device ignores.
static unsigned int required(unsigned int access) {
  return access & ~static_cast<unsigned int>(IBV_ACCESS_OPTIONAL_RANGE);
}

VRDMA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  if (!is_virtual(pd->context)) return real_ibv_reg_mr(pd, addr, length, access);
  return guarded<reg_mr>(pd, addr, length, reinterpret_cast<uintptr_t>(addr),
                         required(static_cast<unsigned int>(access)));
}

VRDMA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                     int access) {
  if (!is_virtual(pd->context)) return real_ibv_reg_mr_iova(pd, addr, length, iova, access);
  return guarded<reg_mr>(pd, addr, length, iova, required(static_cast<unsigned int>(access)));
}

VRDMA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                      unsigned int access) {
  if (!is_virtual(pd->context)) return real_ibv_reg_mr_iova2(pd, addr, length, iova, access);
  return guarded<reg_mr>(pd, addr, length, iova, required(access));
}

VRDMA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                       int fd, int access) {
  if (!is_virtual(pd->context)) return real_ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
  return guarded<reg_dmabuf_mr>(pd, offset, length, iova, fd,
                                required(static_cast<unsigned int>(access)));
}

VRDMA_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                              int access) {
  if (!is_virtual(mr->context)) return real_ibv_rereg_mr(mr, flags, pd, addr, length, access);
  const bool translation = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 ||
      (translation && (addr == nullptr || length == 0)) ||
      (access != 0 && (flags & IBV_REREG_MR_CHANGE_ACCESS) == 0) ||
      ((flags & IBV_REREG_MR_CHANGE_PD) != 0 && (pd == nullptr || pd->context != mr->context))) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  const int error =
      guarded<rereg_mr>(mr, flags, pd, addr, length, required(static_cast<unsigned int>(access)));
  return error > 0 ? IBV_REREG_MR_ERR_CMD : error;
}

VRDMA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return is_virtual(mr->context) ? guarded<dereg_mr>(mr) : real_ibv_dereg_mr(mr);
}

VRDMA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t mr_handle) {
  return is_virtual(pd->context) ? guarded<import_mr>(pd, mr_handle)
                                 : real_ibv_import_mr(pd, mr_handle);
}

VRDMA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  if (is_virtual(mr->context))
    guarded<unimport_mr>(mr);
  else
    real_ibv_unimport_mr(mr);
}

VRDMA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t dm_handle) {
  return is_virtual(context) ? guarded<import_dm>(context, dm_handle)
                             : real_ibv_import_dm(context, dm_handle);
}

VRDMA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  if (is_virtual(dm->context))
    guarded<unimport_dm>(dm);
  else
    real_ibv_unimport_dm(dm);
}

// ---- Completion queues ------------------------------------------------------------------------

VRDMA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return is_virtual(context) ? guarded<create_comp_channel>(context)
                             : real_ibv_create_comp_channel(context);
}

VRDMA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return is_virtual(channel->context) ? guarded<destroy_comp_channel>(channel)
                                      : real_ibv_destroy_comp_channel(channel);
}

VRDMA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                   ibv_comp_channel* channel, int comp_vector) {
  if (!is_virtual(context))
    return real_ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
  if (cqe < 1 || comp_vector < 0) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(cqe);
  attr.cq_context = cq_context;
  attr.channel = channel;
  attr.comp_vector = static_cast<uint32_t>(comp_vector);
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  return reinterpret_cast<ibv_cq*>(guarded<create_cq_ex>(context, &attr));
}

VRDMA_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return is_virtual(cq->context) ? guarded<resize_cq>(cq, cqe) : real_ibv_resize_cq(cq, cqe);
}

VRDMA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return is_virtual(cq->context) ? guarded<destroy_cq>(cq) : real_ibv_destroy_cq(cq);
}

VRDMA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) try {
  return is_virtual(channel->context) ? get_cq_event(channel, cq, cq_context)
                                      : real_ibv_get_cq_event(channel, cq, cq_context);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  if (is_virtual(cq->context))
    ack_cq_events(cq, nevents);
  else
    real_ibv_ack_cq_events(cq, nevents);
}

// ---- Shared receive queues --------------------------------------------------------------------

VRDMA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  if (!is_virtual(pd->context)) return real_ibv_create_srq(pd, init);
  ibv_srq_init_attr_ex attr{};
  attr.srq_context = init->srq_context;
  attr.attr = init->attr;
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.srq_type = IBV_SRQT_BASIC;
  attr.pd = pd;
  ibv_srq* srq = guarded<create_srq_ex>(pd->context, &attr);
  if (srq != nullptr) init->attr = attr.attr;
  return srq;
}

VRDMA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask) {
  return is_virtual(srq->context) ? guarded<modify_srq>(srq, attr, attr_mask)
                                  : real_ibv_modify_srq(srq, attr, attr_mask);
}

VRDMA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return is_virtual(srq->context) ? guarded<query_srq>(srq, attr) : real_ibv_query_srq(srq, attr);
}

VRDMA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return is_virtual(srq->context) ? guarded<destroy_srq>(srq) : real_ibv_destroy_srq(srq);
}

// ---- Queue pairs ------------------------------------------------------------------------------

VRDMA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (!is_virtual(pd->context)) return real_ibv_create_qp(pd, init);
  ibv_qp_init_attr_ex attr{};
  attr.qp_context = init->qp_context;
  attr.send_cq = init->send_cq;
  attr.recv_cq = init->recv_cq;
  attr.srq = init->srq;
  attr.cap = init->cap;
  attr.qp_type = init->qp_type;
  attr.sq_sig_all = init->sq_sig_all;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  ibv_qp* qp = guarded<create_qp_ex>(pd->context, &attr);
  if (qp != nullptr) init->cap = attr.cap;
  return qp;
}

VRDMA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return is_virtual(qp->context) ? guarded<qp_to_qp_ex>(qp) : real_ibv_qp_to_qp_ex(qp);
}

VRDMA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  return is_virtual(qp->context) ? guarded<modify_qp>(qp, attr, attr_mask)
                                 : real_ibv_modify_qp(qp, attr, attr_mask);
}

VRDMA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask,
                              ibv_qp_init_attr* init_attr) {
  return is_virtual(qp->context) ? guarded<query_qp>(qp, attr, attr_mask, init_attr)
                                 : real_ibv_query_qp(qp, attr, attr_mask, init_attr);
}

VRDMA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  return is_virtual(qp->context) ? query_qp_data_in_order(qp, op, flags)
                                 : real_ibv_query_qp_data_in_order(qp, op, flags);
}

VRDMA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return is_virtual(qp->context) ? guarded<destroy_qp>(qp) : real_ibv_destroy_qp(qp);
}

VRDMA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return is_virtual(qp->context) ? guarded<attach_mcast>(qp, gid, lid)
                                 : real_ibv_attach_mcast(qp, gid, lid);
}

VRDMA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return is_virtual(qp->context) ? guarded<detach_mcast>(qp, gid, lid)
                                 : real_ibv_detach_mcast(qp, gid, lid);
}

VRDMA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return is_virtual(qp->context) ? guarded<set_ece>(qp, ece) : real_ibv_set_ece(qp, ece);
}

VRDMA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return is_virtual(qp->context) ? guarded<query_ece>(qp, ece) : real_ibv_query_ece(qp, ece);
}

// ---- Address handles --------------------------------------------------------------------------

VRDMA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return is_virtual(pd->context) ? guarded<create_ah>(pd, attr) : real_ibv_create_ah(pd, attr);
}

VRDMA_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc,
                                     ibv_grh* grh, ibv_ah_attr* attr) {
  return is_virtual(context) ? guarded<init_ah_from_wc>(context, port_num, wc, grh, attr)
                             : real_ibv_init_ah_from_wc(context, port_num, wc, grh, attr);
}

VRDMA_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  if (!is_virtual(pd->context)) return real_ibv_create_ah_from_wc(pd, wc, grh, port_num);
  ibv_ah_attr attr{};
  if (guarded<init_ah_from_wc>(pd->context, port_num, wc, grh, &attr) != 0) return nullptr;
  return guarded<create_ah>(pd, &attr);
}

VRDMA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return is_virtual(ah->context) ? guarded<destroy_ah>(ah) : real_ibv_destroy_ah(ah);
}
