// churn MILLISECONDS: uses every verbs device for that long: RDMA WRITEs of a queue pair connected
// to itself, checked byte by byte. The devices may be removed at any moment.
//
// 0: all worked to the end; 3: a device was removed; 1: an error.
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/integration/rc.h"

namespace {

constexpr size_t kBytes = 16384;

[[noreturn]] void gone(const char* what) {
  std::printf("gone: %s\n", what);
  std::exit(3);
}

struct Device {
  ibv_context* context;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> memory = std::vector<char>(2 * kBytes);
  char turn = 0;

  explicit Device(ibv_device* device) : context(ibv_open_device(device)) {
    if (context == nullptr) gone("open");
    if ((pd = ibv_alloc_pd(context)) == nullptr) gone("pd");
    if ((cq = ibv_create_cq(context, 16, nullptr, nullptr, 0)) == nullptr) gone("cq");
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr == nullptr) gone("mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    if ((qp = ibv_create_qp(pd, &init)) == nullptr) gone("qp");
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, 0, &gid) != 0) gone("gid");
    if (const char* state = rc::connect(qp, qp->qp_num, gid, 0); state != nullptr) gone(state);
  }

  void write() {
    std::memset(memory.data(), ++turn, kBytes);
    ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()), kBytes, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {sge.addr + kBytes, mr->rkey};
    if (ibv_post_send(qp, &wr, &bad) != 0) gone("post");
    ibv_wc wc{};
    int count = 0;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
    }
    if (count < 0) gone("poll");
    if (wc.status != IBV_WC_SUCCESS) gone(ibv_wc_status_str(wc.status));
    if (std::memcmp(memory.data(), memory.data() + kBytes, kBytes) == 0) return;
    std::printf("what was written is not there\n");
    std::exit(1);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(argc > 1 ? std::atoi(argv[1]) : 100);
  std::puts("begun");
  std::fflush(stdout);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) gone("list");
  std::vector<Device> devices;
  devices.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) devices.emplace_back(list[i]);
  do {
    for (Device& device : devices) device.write();
  } while (std::chrono::steady_clock::now() < end);
  std::printf("used: %d\n", count);
}
