// Creates, uses and destroys one object of each kind repeatedly for some seconds while the daemon
// is replaced: each request is executed once, and nothing is left that holds another object.
//
//   vrdma_takeover_objects DEVICE GID_INDEX SECONDS
//
// Exits with 0 on success; otherwise prints what failed.
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* what, int error = 0) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
  std::exit(1);
}
template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what, errno);
  return object;
}
void expect_0(int error, const char* what) {
  if (error != 0) fail(what, error);
}

class Round {
 public:
  Round(ibv_context* context, uint8_t gid_index) : gid_index_(gid_index) {
    pd_ = made(ibv_alloc_pd(context), "allocate a PD");
    channel_ = made(ibv_create_comp_channel(context), "make a channel");
    cq_ = made(ibv_create_cq(context, 4, nullptr, channel_, 0), "make a CQ");
    mr_ = made(ibv_reg_mr(pd_, data_.data(), sizeof data_, IBV_ACCESS_LOCAL_WRITE), "register");
    expect_0(ibv_resize_cq(cq_, 64), "resize the CQ");
    if (ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) != 0)
      fail("register again", errno);
    expect_0(ibv_query_gid(context, 1, gid_index, &gid_), "query the GID");
    for (ibv_qp*& qp : qps_) {
      ibv_qp_init_attr attr{};
      attr.send_cq = attr.recv_cq = cq_;
      attr.cap = {4, 4, 1, 1, 0};
      attr.qp_type = IBV_QPT_RC;
      attr.sq_sig_all = 1;
      qp = made(ibv_create_qp(pd_, &attr), "make a QP");
    }
    connect(qps_[0], qps_[1]->qp_num);
    connect(qps_[1], qps_[0]->qp_num);
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = gid_;
    path.grh.sgid_index = gid_index;
    path.grh.hop_limit = 64;
    ah_ = made(ibv_create_ah(pd_, &path), "make an address handle");
  }

  // Sends a message from one queue pair to the other and waits for it.
  void send() {
    data_ = {1, 2, 3, 4, 0, 0, 0, 0};
    ibv_sge from{reinterpret_cast<uint64_t>(data_.data()), 32, mr_->lkey};
    ibv_sge to{reinterpret_cast<uint64_t>(data_.data() + 4), 32, mr_->lkey};
    ibv_recv_wr receive{}, *bad_receive = nullptr;
    receive.sg_list = &to;
    receive.num_sge = 1;
    expect_0(ibv_req_notify_cq(cq_, 0), "arm");
    expect_0(ibv_post_recv(qps_[1], &receive, &bad_receive), "post a receive");
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &from;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    expect_0(ibv_post_send(qps_[0], &wr, &bad), "post a send");
    for (int left = 2; left > 0;) {
      ibv_wc wc{};
      if (ibv_poll_cq(cq_, 1, &wc) == 0) {
        ibv_cq* cq = nullptr;
        void* with = nullptr;
        if (ibv_get_cq_event(channel_, &cq, &with) != 0) fail("wait", errno);
        ibv_ack_cq_events(cq, 1);
        expect_0(ibv_req_notify_cq(cq_, 0), "arm");
        continue;
      }
      if (wc.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc.status));
      --left;
    }
    if (data_[4] != 1 || data_[7] != 4) fail("other data arrives");
  }

  void undo() {
    expect_0(ibv_destroy_ah(ah_), "destroy the address handle");
    for (ibv_qp* qp : qps_) expect_0(ibv_destroy_qp(qp), "destroy a QP");
    expect_0(ibv_destroy_cq(cq_), "destroy the CQ");
    expect_0(ibv_destroy_comp_channel(channel_), "destroy the channel");
    expect_0(ibv_dereg_mr(mr_), "deregister");
    expect_0(ibv_dealloc_pd(pd_), "deallocate the PD");
  }

 private:
  void connect(ibv_qp* qp, uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    expect_0(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             "to INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid_;
    attr.ah_attr.grh.sgid_index = gid_index_;
    attr.ah_attr.grh.hop_limit = 64;
    expect_0(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "to RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    expect_0(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
             "to RTS");
  }

  uint8_t gid_index_;
  ibv_gid gid_{};
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_ah* ah_ = nullptr;
  std::array<ibv_qp*, 2> qps_{};
  std::array<uint64_t, 8> data_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  int count = 0;
  ibv_device** devices = made(ibv_get_device_list(&count), "list devices");
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(devices[i]), argv[1]) == 0)
      context = ibv_open_device(devices[i]);
  made(context, "open the device");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[3]));
  int rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    Round round(context, static_cast<uint8_t>(std::atoi(argv[2])));
    round.send();
    round.undo();
  }
  expect_0(ibv_close_device(context), "close the device");
  std::printf("%d rounds\n", rounds);
  return 0;
}
