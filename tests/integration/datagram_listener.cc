// vrdma_datagram_listener DEVICE: keeps a queue pair that receives datagrams, so that the sockets
// of the vdevice's addresses stay open and every packet that comes is counted. Prints its number,
// and ends by a signal.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  _exit(1);
}

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const all = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(all[i]), name) == 0) return ibv_open_device(all[i]);
  fail(name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ibv_context* const context = open_device(argv[1]);
  if (context == nullptr) fail("ibv_open_device");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
  if (pd == nullptr || cq == nullptr) fail("ibv_alloc_pd or ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  if (qp == nullptr) fail("ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = 0x1234;
  if (ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0)
    fail("to INIT");
  attributes.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) fail("to RTR");
  std::printf("queue pair %u\n", qp->qp_num);
  std::fflush(stdout);
  for (;;) ::pause();
}
