// A queue pair that is connected to PEER over the network, and wants to be connected to OTHER
// without leaving SQD, as IBTA 10.3.1 permits. Prints "refused" if it is, "moved" if not.
//
//   vrdma_another_peer GID-INDEX PEER OTHER     (addresses: IPv4)
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/integration/rc.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "another_peer: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

ibv_gid gid_of(const char* address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  if (::inet_pton(AF_INET, address, gid.raw + 12) != 1) fail(address);
  return gid;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: another_peer GID-INDEX PEER OTHER");
  ibv_device** const devices = ibv_get_device_list(nullptr);
  ibv_context* const context =
      devices != nullptr && *devices != nullptr ? ibv_open_device(*devices) : nullptr;
  if (context == nullptr) fail("no device");
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(ibv_alloc_pd(context), &init);
  if (qp == nullptr) fail("no queue pair");
  if (const char* state = rc::connect(qp, 0x1234, gid_of(argv[2]), std::atoi(argv[1]))) fail(state);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE) != 0) fail("SQD");
  attr.qp_state = IBV_QPS_SQD;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_of(argv[3]);
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(std::atoi(argv[1]));
  attr.ah_attr.grh.hop_limit = 64;
  const int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV);
  if (error != 0 && error != EINVAL) fail("SQD to SQD");
  ibv_qp_attr now{};
  ibv_qp_init_attr of{};
  if (ibv_query_qp(qp, &now, IBV_QP_AV | IBV_QP_STATE, &of) != 0) fail("query");
  const ibv_gid its = gid_of(argv[error == 0 ? 3 : 2]);
  if (now.qp_state != IBV_QPS_SQD || std::memcmp(&now.ah_attr.grh.dgid, &its, sizeof its) != 0)
    fail("the state or the address is another");
  std::puts(error == 0 ? "moved" : "refused");
}
