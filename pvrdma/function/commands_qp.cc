// Commands about queue pairs.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pvrdma/function/attachment.h"
#include "pvrdma/function/refusals.h"

namespace vrdma::pvrdma {

namespace {

constexpr uint32_t kKnownMask = (uint32_t{IBV_QP_RATE_LIMIT} - 1) & ~uint32_t{IBV_QP_ALT_PATH} &
                                ~uint32_t{IBV_QP_PATH_MIG_STATE} & ~uint32_t{IBV_QP_CAP};

}  // namespace

// The rings, by the geometry that the driver tells.
Attachment::Done Attachment::make_queues(const CreateQp& wish, Qp* qp) {
  if (wish.max_send_sge > kMostSges || wish.max_recv_sge > kMostSges)
    return base::fail(EINVAL, "a work request has too many elements");
  const uint64_t send_pages = wish.send_pages;
  if (wish.pages < send_pages + 1) return base::fail(EINVAL, "a queue pair has too few pages");
  const uint64_t receive_pages = wish.pages - send_pages - 1;
  const uint64_t sends = send_stride(wish.max_send_sge),
                 receives = receive_stride(wish.max_recv_sge);
  const bool has_receives = wish.is_srq == 0 && wish.max_recv_wr != 0;
  if (!fits(wish.max_send_wr, sends, send_pages) ||
      (has_receives && !fits(wish.max_recv_wr, receives, receive_pages)))
    return base::fail(EINVAL, "the queues of a queue pair do not fit into its pages");
  auto pages = show_ring(wish.directory, wish.pages);
  if (!pages) return base::pass(std::move(pages.error()));
  qp->pages = std::move(*pages);
  uint8_t* const page = qp->pages.bytes();
  uint8_t* const first = page + kPageSize;
  qp->sends = {first_pair(page), first, wish.max_send_wr, static_cast<uint32_t>(sends)};
  qp->send_ids.resize(wish.max_send_wr);
  qp->send_is_told.resize(wish.max_send_wr);
  qp->all_signaled = wish.sq_sig_all != 0;
  qp->max_send_sge = wish.max_send_sge;
  qp->max_recv_sge = wish.max_recv_sge;
  if (has_receives)
    qp->receives = {second_pair(page), first + send_pages * kPageSize, wish.max_recv_wr,
                    static_cast<uint32_t>(receives)};
  return {};
}

Attachment::Done Attachment::create_qp(const CreateQp& wish, QpAnswer* answer) {
  auto qp = std::make_unique<Qp>();
  qp->pd = pds_.find(wish.pd);
  qp->send_cq = cqs_.find(wish.send_cq);
  qp->recv_cq = cqs_.find(wish.recv_cq);
  Srq* const srq = wish.is_srq != 0 ? srqs_.find(wish.srq) : nullptr;
  if (qp->pd == nullptr) return unknown("protection domain", wish.pd);
  if (qp->send_cq == nullptr) return unknown("completion queue", wish.send_cq);
  if (qp->recv_cq == nullptr) return unknown("completion queue", wish.recv_cq);
  if (wish.is_srq != 0 && srq == nullptr) return unknown("shared receive queue", wish.srq);
  if (srq != nullptr && srq->is_lost()) return lost("shared receive queue", wish.srq);
  qp->context = qp->pd->context;
  qp->type = static_cast<ibv_qp_type>(wish.qp_type);
  if (qp->type != IBV_QPT_RC && qp->type != IBV_QPT_UD && qp->type != kGsiType)
    return base::fail(EOPNOTSUPP, "only RC, UD and GSI are offered");
  if (qp->type == kGsiType && qp->context != 0)
    return base::fail(EPERM, "queue pair 1 is the guest kernel's");
  if (qps_.is_full()) return too_many("queue pairs");
  if (Done done = make_queues(wish, qp.get()); !done) return done;
  if (Done done = make_verbs(wish, srq, qp.get()); !done) return done;
  const uint32_t qpn = qp->verbs->qp_num;
  *answer = {qpn, 0, wish.max_send_wr, wish.max_recv_wr, wish.max_send_sge, wish.max_recv_sge, 0};
  Qp* const made = qps_.add(std::move(qp));
  answer->handle = made->handle;
  by_number_[qpn] = made;
  forget_pushed(*made);
  ImagedQp& imaged = image_.make(image_.qps, made->handle);
  imaged.wish = wish;
  imaged.sends_ended = imaged.receives_ended = 0;
  imaged.changed = 0;
  imaged.before = imaged.after = IBV_QPS_RESET;
  return {};
}

Attachment::Done Attachment::make_verbs(const CreateQp& wish, Srq* srq, Qp* qp) {
  ibv_qp_init_attr init{};
  init.qp_context = qp;
  init.send_cq = qp->send_cq->verbs.get();
  init.recv_cq = qp->recv_cq->verbs.get();
  init.srq = srq != nullptr ? srq->verbs.get() : nullptr;
  init.cap = {wish.max_send_wr, srq != nullptr ? 0 : wish.max_recv_wr,
              std::max(wish.max_send_sge, 1u), std::max(wish.max_recv_sge, 1u), 0};
  init.qp_type = qp->type;
  init.sq_sig_all = wish.sq_sig_all != 0 ? 1 : 0;
  qp->verbs.reset(::ibv_create_qp(qp->pd->verbs.get(), &init));
  if (qp->verbs == nullptr)
    return base::fail_errno(
        qp->type == kGsiType ? "create queue pair 1, which needs vrdmactl vdev create --allow qp1"
                             : "create a queue pair");
  return {};
}

Attachment::Done Attachment::modify_qp(const ModifyQp& wish) {
  Qp* const qp = qps_.find(wish.handle);
  if (qp == nullptr) return unknown("queue pair", wish.handle);
  uint32_t mask = wish.mask & ~uint32_t{IBV_QP_CAP};
  if ((mask & ~kKnownMask) != 0) return base::fail(EINVAL, "alternate paths are not offered");
  const QpAttributes& from = wish.attributes;
  if (qp->is_lost() && (mask & IBV_QP_STATE) != 0 && from.qp_state == IBV_QPS_ERR) return {};
  if (qp->is_lost()) return lost("queue pair", wish.handle);
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(from.qp_state);
  attr.cur_qp_state = static_cast<ibv_qp_state>(from.cur_qp_state);
  attr.path_mtu = static_cast<ibv_mtu>(from.path_mtu);
  attr.qkey = from.qkey;
  attr.rq_psn = from.rq_psn;
  attr.sq_psn = from.sq_psn;
  attr.dest_qp_num = from.dest_qp_num;
  attr.qp_access_flags = from.access_flags;
  attr.pkey_index = from.pkey_index;
  attr.en_sqd_async_notify = from.en_sqd_async;
  attr.max_rd_atomic = from.max_rd_atomic;
  attr.max_dest_rd_atomic = from.max_dest_rd_atomic;
  attr.min_rnr_timer = from.min_rnr_timer;
  attr.port_num = from.port;
  attr.timeout = from.timeout;
  attr.retry_cnt = from.retry_cnt;
  attr.rnr_retry = from.rnr_retry;
  if (qp->type == kGsiType && attr.qp_state == IBV_QPS_INIT && (mask & IBV_QP_STATE) != 0) {
    mask |= IBV_QP_PORT;  // the kernel makes it for a port and does not name it again
    attr.port_num = 1;
  }
  if ((mask & IBV_QP_AV) != 0) {
    const auto source = to_adapter(from.address.sgid_index);
    if (!source)
      return base::fail(EINVAL, "the guest's GID " + std::to_string(from.address.sgid_index) +
                                    " is not one of the vdevice");
    std::memcpy(attr.ah_attr.grh.dgid.raw, from.address.dgid, sizeof from.address.dgid);
    attr.ah_attr.grh.flow_label = from.address.flow_label;
    attr.ah_attr.grh.sgid_index = *source;
    attr.ah_attr.grh.hop_limit = from.address.hop_limit;
    attr.ah_attr.grh.traffic_class = from.address.traffic_class;
    attr.ah_attr.dlid = from.address.dlid;
    attr.ah_attr.sl = from.address.sl;
    attr.ah_attr.static_rate = from.address.static_rate;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
  }
  if (const int error = ::ibv_modify_qp(qp->verbs.get(), &attr, static_cast<int>(mask)); error != 0)
    return base::fail_errno("modify queue pair " + std::to_string(wish.handle), error);
  if ((mask & IBV_QP_STATE) == 0) return {};
  qp->state = attr.qp_state;
  ImagedQp& imaged = image_.qps.all[wish.handle];
  if (imaged.changed <= image_.progress.noted) imaged.before = imaged.after;
  imaged.changed = image_.now();
  imaged.after = attr.qp_state;
  if (attr.qp_state == IBV_QPS_RESET) {
    // The driver empties both rings.
    qp->sends.rewind();
    qp->receives.rewind();
    forget_pushed(*qp);
    note_first(qp, false, 0);
    note_first(qp, true, 0);
    qp->is_broken = false;
    qp->awaited.reset();
    drop_held(wish.handle);
  } else {
    // Receives that were posted before, or all that must be flushed now.
    look({Due::What::kReceives, wish.handle});
    look({Due::What::kSends, wish.handle});
  }
  return {};
}

Attachment::Done Attachment::query_qp(const QueryQp& wish, QpAttributes* answer) {
  const Qp* const qp = qps_.find(wish.handle);
  if (qp == nullptr) return unknown("queue pair", wish.handle);
  if (qp->is_lost()) {
    answer->qp_state = answer->cur_qp_state = IBV_QPS_ERR;
    return {};
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const auto mask = static_cast<int>(kKnownMask);
  if (const int error = ::ibv_query_qp(qp->verbs.get(), &attr, mask, &init); error != 0)
    return base::fail_errno("query queue pair " + std::to_string(wish.handle), error);
  answer->qp_state = attr.qp_state;
  answer->cur_qp_state = attr.cur_qp_state;
  answer->path_mtu = attr.path_mtu;
  answer->qkey = attr.qkey;
  answer->rq_psn = attr.rq_psn;
  answer->sq_psn = attr.sq_psn;
  answer->dest_qp_num = attr.dest_qp_num;
  answer->access_flags = attr.qp_access_flags;
  answer->pkey_index = attr.pkey_index;
  answer->en_sqd_async = attr.en_sqd_async_notify;
  answer->sq_draining = attr.sq_draining;
  answer->max_rd_atomic = attr.max_rd_atomic;
  answer->max_dest_rd_atomic = attr.max_dest_rd_atomic;
  answer->min_rnr_timer = attr.min_rnr_timer;
  answer->port = attr.port_num;
  answer->timeout = attr.timeout;
  answer->retry_cnt = attr.retry_cnt;
  answer->rnr_retry = attr.rnr_retry;
  answer->max_send_wr = init.cap.max_send_wr;
  answer->max_recv_wr = init.cap.max_recv_wr;
  answer->max_send_sge = init.cap.max_send_sge;
  answer->max_recv_sge = init.cap.max_recv_sge;
  Address& address = answer->address;
  std::memcpy(address.dgid, attr.ah_attr.grh.dgid.raw, sizeof address.dgid);
  address.flow_label = attr.ah_attr.grh.flow_label;
  address.sgid_index = to_guest(attr.ah_attr.grh.sgid_index);
  address.hop_limit = attr.ah_attr.grh.hop_limit;
  address.traffic_class = attr.ah_attr.grh.traffic_class;
  address.sl = attr.ah_attr.sl;
  address.static_rate = attr.ah_attr.static_rate;
  address.flags = attr.ah_attr.is_global;
  address.port = attr.ah_attr.port_num;
  return {};
}

Attachment::Done Attachment::destroy_qp(uint32_t handle) {
  const Qp* const qp = qps_.find(handle);
  const uint32_t qpn = qp != nullptr && !qp->is_lost() ? qp->verbs->qp_num : 0;
  Done done = destroy(&qps_, handle, "queue pair");
  if (!done) return done;
  by_number_.erase(qpn);
  forget({Due::What::kSends, Due::What::kReceives}, handle);
  drop_held(handle);
  image_.end(image_.qps, handle);
  return done;
}

}  // namespace vrdma::pvrdma
