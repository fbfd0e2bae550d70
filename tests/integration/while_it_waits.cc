// while_it_waits VDEVICE FILE: two connections to itself on one completion queue. Prints "ready",
// and continues when FILE exists: the daemon has been killed. One thread then moves the first queue
// pair to SQD, which waits for the next daemon; the other one writes and polls with the second
// queue pair meanwhile. Exits with 0 on success.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kBytes = 4096;

void expect(bool so, const char* what) {
  if (so) return;
  std::fprintf(stderr, "FAILED: %s (%s)\n", what, std::strerror(errno));
  std::_Exit(1);
}

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  void* const memory = std::aligned_alloc(kBytes, 2 * kBytes);

  explicit Device(const char* name) {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
    expect(context != nullptr, "open the vdevice");
    expect((pd = ibv_alloc_pd(context)) != nullptr, "pd");
    expect((cq = ibv_create_cq(context, 64, nullptr, nullptr, 0)) != nullptr, "cq");
    mr = ibv_reg_mr(pd, memory, 2 * kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    expect(mr != nullptr, "mr");
  }

  // Returns one of two connected ones.
  [[nodiscard]] ibv_qp* connected() const {
    ibv_qp* const qps[] = {make(), make()};
    for (int i = 0; i < 2; ++i) to_rtr(qps[i], qps[1 - i]->qp_num);
    for (ibv_qp* qp : qps) to_rts(qp);
    return qps[0];
  }

  [[nodiscard]] ibv_qp* make() const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    expect(qp != nullptr, "qp");
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    expect(ibv_modify_qp(qp, &to,
                         IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0,
           "INIT");
    return qp;
  }

  void to_rtr(ibv_qp* qp, uint32_t peer) const {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    to.dest_qp_num = peer;
    to.ah_attr.is_global = to.ah_attr.port_num = 1;
    expect(ibv_query_gid(context, 1, 0, &to.ah_attr.grh.dgid) == 0, "gid");
    expect(ibv_modify_qp(qp, &to,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
           "RTR");
  }

  static void to_rts(ibv_qp* qp) {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 14;
    to.retry_cnt = to.rnr_retry = 7;
    expect(ibv_modify_qp(qp, &to,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
           "RTS");
  }

  void write(ibv_qp* qp) {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory), kBytes, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {sge.addr + kBytes, mr->rkey};
    expect(ibv_post_send(qp, &wr, &bad) == 0, "post");
    // Mostly empty polls, so that the library checks for the daemon.
    ibv_wc wc{};
    int count = 0;
    for (int i = 0; i < 100'000 && count == 0; ++i) count = ibv_poll_cq(cq, 1, &wc);
    expect(count == 1 && wc.status == IBV_WC_SUCCESS, "no completion, or one with an error");
    for (int i = 0; i < 64; ++i) expect(ibv_poll_cq(cq, 1, &wc) == 0, "one completion too many");
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Device device(argv[1]);
  ibv_qp* const first = device.connected();
  ibv_qp* const second = device.connected();
  device.write(first);
  device.write(second);
  std::puts("ready");
  std::fflush(stdout);
  while (::access(argv[2], F_OK) != 0) ::usleep(10'000);

  std::atomic<bool> changed = false;
  std::thread changes([&] {
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_SQD;
    expect(ibv_modify_qp(first, &to, IBV_QP_STATE) == 0, "SQD");
    changed = true;
  });
  const auto begun = Clock::now();
  unsigned long writes = 0;
  while (Clock::now() - begun < std::chrono::seconds(2)) {
    device.write(second);
    ++writes;
  }
  expect(!changed, "SQD came without a daemon");
  std::printf("%lu writes\n", writes);
  std::fflush(stdout);
  changes.join();
  expect(writes > 100, "hardly anything was written");
  device.write(second);
  std::_Exit(0);
}
