#include "tests/bench/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vrdma::bench {

void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

Device& device() {
  static Device opened = [] {
    Device made{};
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) fail("there is no vdevice in this namespace");
    made.context = ibv_open_device(list[0]);
    if (made.context == nullptr) fail("ibv_open_device");
    ibv_free_device_list(list);
    made.pd = ibv_alloc_pd(made.context);
    if (made.pd == nullptr) fail("ibv_alloc_pd");
    if (ibv_query_gid(made.context, 1, 0, &made.gid) != 0) fail("ibv_query_gid");
    return made;
  }();
  return opened;
}

Buffer::Buffer(size_t bytes) : size_((bytes + 4095) / 4096 * 4096) {
  void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  data_ = static_cast<char*>(at);
  std::memset(data_, 1, size_);
}
Buffer::~Buffer() { munmap(data_, size_); }

ibv_mr* register_memory(const Buffer& buffer) {
  ibv_mr* mr =
      ibv_reg_mr(device().pd, buffer.data(), buffer.size(),
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (mr == nullptr) fail("ibv_reg_mr");
  return mr;
}

ibv_cq* make_cq(int entries, ibv_comp_channel* channel) {
  ibv_cq* cq = ibv_create_cq(device().context, entries, nullptr, channel, 0);
  if (cq == nullptr) fail("ibv_create_cq");
  return cq;
}

ibv_qp* make_qp(ibv_cq* cq, uint32_t depth) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {depth, depth, 1, 1, 8};
  ibv_qp* qp = ibv_create_qp(device().pd, &wanted);
  if (qp == nullptr) fail("ibv_create_qp");
  return qp;
}

namespace {

void to_init(ibv_qp* qp) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (ibv_modify_qp(qp, &to,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    fail("ibv_modify_qp to INIT");
}

void to_rtr(ibv_qp* qp, uint32_t peer, const Way& way) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = way.mtu;
  to.dest_qp_num = peer;
  to.ah_attr.is_global = 1;
  to.ah_attr.grh.dgid = way.to;
  to.ah_attr.grh.sgid_index = way.index;
  to.ah_attr.grh.hop_limit = way.hops;
  to.ah_attr.port_num = 1;
  to.min_rnr_timer = 12;
  to.max_dest_rd_atomic = 16;
  if (ibv_modify_qp(qp, &to,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    fail("ibv_modify_qp to RTR");
}

Way to_itself() { return {device().gid, 0, 1, IBV_MTU_4096, 14}; }

void to_rts(ibv_qp* qp, const Way& way) {
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_RTS;
  to.timeout = way.timeout;
  to.retry_cnt = to.rnr_retry = 7;
  to.max_rd_atomic = 16;
  if (ibv_modify_qp(qp, &to,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    fail("ibv_modify_qp to RTS");
}

}  // namespace

void join(ibv_qp* qp, uint32_t peer, const Way& way) {
  to_init(qp);
  to_rtr(qp, peer, way);
  to_rts(qp, way);
}
void join(ibv_qp* qp, uint32_t peer) { join(qp, peer, to_itself()); }
void join_itself(ibv_qp* qp) { join(qp, qp->qp_num); }

Queues::Queues(size_t count, uint32_t depth) : near_{make_cq(4096), {}}, far_{make_cq(4096), {}} {
  for (size_t i = 0; i < count; ++i) {
    for (Side* side : {&near_, &far_}) {
      side->qps.push_back(make_qp(side->cq, depth));
      to_init(side->qps.back());
    }
    to_rtr(at(i), far_at(i)->qp_num, to_itself());
    to_rtr(far_at(i), at(i)->qp_num, to_itself());
    to_rts(at(i), to_itself());
    to_rts(far_at(i), to_itself());
  }
}
Queues::~Queues() {
  for (const Side* side : {&near_, &far_}) {
    for (ibv_qp* qp : side->qps) ibv_destroy_qp(qp);
    ibv_destroy_cq(side->cq);
  }
}

void post(ibv_qp* qp, const ibv_mr* mr, ibv_wr_opcode opcode, bool signaled) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(mr->addr), 8, mr->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_INLINE;
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(mr->addr) + mr->length - 8;
  request.wr.rdma.rkey = mr->rkey;
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(qp, &request, &bad)) != 0) fail("ibv_post_send");
}

void post_receive(ibv_qp* qp, const ibv_mr* mr) {
  ibv_sge piece{reinterpret_cast<uintptr_t>(mr->addr), 8, mr->lkey};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(qp, &request, &bad)) != 0) fail("ibv_post_recv");
}

void drain(ibv_cq* cq, size_t count) {
  while (count > 0) {
    ibv_wc completion;
    const int found = ibv_poll_cq(cq, 1, &completion);
    if (found < 0 || (found == 1 && completion.status != IBV_WC_SUCCESS)) {
      std::fprintf(stderr, "ibv_poll_cq: %d, status %d\n", found, completion.status);
      std::exit(1);
    }
    count -= static_cast<size_t>(found);
  }
}

}  // namespace vrdma::bench
