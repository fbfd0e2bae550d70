/* dlvsym.c DEVICE PORT [SERVER]: uses verbs as NCCL does, which links no libibverbs: dlopen, dlvsym
 * of the versions below, sysfs beside verbs, and RDMA WRITE with immediate into a flushed buffer.
 *
 * Two processes; the one with SERVER connects to the other by TCP to exchange addresses. Prints the
 * counts of symbols found and of those that verbs may leave out. Before that it looks for what UCX,
 * libfabric, nvshmem and Mooncake use, under both names of the library, and calls what has one
 * right answer. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port /* a macro of verbs.h; NCCL takes the symbol */
#undef ibv_reg_mr
#undef ibv_get_device_list

#define DIE(...)                  \
  do {                            \
    fprintf(stderr, __VA_ARGS__); \
    fputc('\n', stderr);          \
    exit(1);                      \
  } while (0)
#define CHECK(condition) \
  if (!(condition)) DIE("line %d: not so: %s", __LINE__, #condition)

/* The symbols that NCCL 2.18 looks for, with their versions; `must`: it gives up without. */
#define SYMBOLS(S)                                                                                 \
  S(1, "1.1", struct ibv_device**, get_device_list, (int*))                                        \
  S(1, "1.1", void, free_device_list, (struct ibv_device**))                                       \
  S(1, "1.1", const char*, get_device_name, (struct ibv_device*))                                  \
  S(1, "1.1", struct ibv_context*, open_device, (struct ibv_device*))                              \
  S(1, "1.1", int, close_device, (struct ibv_context*))                                            \
  S(1, "1.1", int, get_async_event, (struct ibv_context*, struct ibv_async_event*))                \
  S(1, "1.1", void, ack_async_event, (struct ibv_async_event*))                                    \
  S(1, "1.1", int, query_device, (struct ibv_context*, struct ibv_device_attr*))                   \
  S(1, "1.1", int, query_port, (struct ibv_context*, uint8_t, struct ibv_port_attr*))              \
  S(1, "1.1", int, query_gid, (struct ibv_context*, uint8_t, int, union ibv_gid*))                 \
  S(1, "1.1", int, query_qp, (struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*)) \
  S(1, "1.1", struct ibv_pd*, alloc_pd, (struct ibv_context*))                                     \
  S(1, "1.1", int, dealloc_pd, (struct ibv_pd*))                                                   \
  S(1, "1.1", struct ibv_mr*, reg_mr, (struct ibv_pd*, void*, size_t, int))                        \
  S(0, "1.8", struct ibv_mr*, reg_mr_iova2, (struct ibv_pd*, void*, size_t, uint64_t, unsigned))   \
  S(0, "1.12", struct ibv_mr*, reg_dmabuf_mr,                                                      \
    (struct ibv_pd*, uint64_t, size_t, uint64_t, int, int))                                        \
  S(1, "1.1", int, dereg_mr, (struct ibv_mr*))                                                     \
  S(1, "1.1", struct ibv_cq*, create_cq,                                                           \
    (struct ibv_context*, int, void*, struct ibv_comp_channel*, int))                              \
  S(1, "1.1", int, destroy_cq, (struct ibv_cq*))                                                   \
  S(1, "1.1", struct ibv_qp*, create_qp, (struct ibv_pd*, struct ibv_qp_init_attr*))               \
  S(1, "1.1", int, modify_qp, (struct ibv_qp*, struct ibv_qp_attr*, int))                          \
  S(1, "1.1", int, destroy_qp, (struct ibv_qp*))                                                   \
  S(1, "1.1", int, fork_init, (void))                                                              \
  S(1, "1.1", const char*, event_type_str, (enum ibv_event_type))                                  \
  S(0, "1.10", int, query_ece, (struct ibv_qp*, struct ibv_ece*))                                  \
  S(0, "1.10", int, set_ece, (struct ibv_qp*, struct ibv_ece*))

#define DECLARE(must, version, result, name, arguments) static result(*verbs_##name) arguments;
SYMBOLS(DECLARE)

/* Beside NCCL's; without a leading "ibv_". */
static const char* const kOthers[][2] = {
    {"create_comp_channel", "1.0"},
    {"destroy_comp_channel", "1.0"},
    {"get_cq_event", "1.1"},
    {"ack_cq_events", "1.1"},
    {"resize_cq", "1.1"},
    {"create_srq", "1.1"},
    {"modify_srq", "1.1"},
    {"query_srq", "1.1"},
    {"destroy_srq", "1.1"},
    {"create_ah", "1.1"},
    {"destroy_ah", "1.1"},
    {"create_ah_from_wc", "1.1"},
    {"init_ah_from_wc", "1.1"},
    {"get_device_guid", "1.1"},
    {"node_type_str", "1.1"},
    {"port_state_str", "1.1"},
    {"wc_status_str", "1.1"},
    {"query_pkey", "1.1"},
    {"get_pkey_index", "1.5"},
    {"attach_mcast", "1.1"},
    {"detach_mcast", "1.1"},
    {"rate_to_mult", "1.0"},
    {"mult_to_ibv_rate", "1.0"},
    {"rate_to_mbps", "1.1"},
    {"mbps_to_ibv_rate", "1.1"},
    {"rereg_mr", "1.1"},
    {"reg_mr_iova", "1.7"},
    {"qp_to_qp_ex", "1.6"},
    {"get_device_index", "1.9"},
    {"import_device", "1.10"},
    {"import_pd", "1.10"},
    {"unimport_pd", "1.10"},
    {"import_mr", "1.10"},
    {"unimport_mr", "1.10"},
    {"is_fork_initialized", "1.13"},
    {"query_qp_data_in_order", "1.14"},
    {"_ibv_query_gid_ex", "1.11"},
    {"_ibv_query_gid_table", "1.11"},
    {"resolve_eth_l2_from_gid", "1.1"},
};

/* What both names of the library have of these. */
static int probe(void) {
  int found = 0;
  void* const first = dlopen("libibverbs.so", RTLD_NOW | RTLD_LOCAL);
  void* const second = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (first == NULL || second == NULL) DIE("%s", dlerror());
  for (size_t i = 0; i < sizeof kOthers / sizeof kOthers[0]; ++i) {
    char name[64], version[32];
    snprintf(name, sizeof name, "%s%s", strstr(kOthers[i][0], "ibv_") != NULL ? "" : "ibv_",
             kOthers[i][0]);
    snprintf(version, sizeof version, "IBVERBS_%s", kOthers[i][1]);
    void* const symbol = dlvsym(first, name, version);
    if (symbol == NULL) DIE("there is no %s@%s", name, version);
    if (symbol != dlvsym(second, name, version)) DIE("libibverbs.so and .so.1 differ in %s", name);
    ++found;
  }
  if (dlvsym(first, "ibv_get_device_list", "IBVERBS_9.9") != NULL) DIE("any version is found");
  const char* (*node_type_str)(enum ibv_node_type) =
      (const char* (*)(enum ibv_node_type))dlvsym(first, "ibv_node_type_str", "IBVERBS_1.1");
  const char* (*wc_status_str)(enum ibv_wc_status) =
      (const char* (*)(enum ibv_wc_status))dlvsym(first, "ibv_wc_status_str", "IBVERBS_1.1");
  int (*rate_to_mbps)(enum ibv_rate) =
      (int (*)(enum ibv_rate))dlvsym(first, "ibv_rate_to_mbps", "IBVERBS_1.1");
  CHECK(strcmp(node_type_str(IBV_NODE_CA), "InfiniBand channel adapter") == 0);
  CHECK(strcmp(wc_status_str(IBV_WC_SUCCESS), "success") == 0);
  CHECK(rate_to_mbps(IBV_RATE_100_GBPS) == 103125);
  return found;
}

static void load(void) {
  int found = 0;
  void* library = dlopen("libibverbs.so", RTLD_NOW);
  if (library == NULL) library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == NULL) DIE("%s", dlerror());
#define LOAD(must, version, result, name, arguments)                                   \
  *(void**)&verbs_##name = dlvsym(library, "ibv_" #name, "IBVERBS_" version);          \
  if (verbs_##name == NULL && must) DIE("there is no ibv_" #name "@IBVERBS_" version); \
  found += verbs_##name != NULL;
  SYMBOLS(LOAD)
  printf("symbols %d\nothers %d\n", found, probe());
}

/* The GID to use, by the files that NCCL reads: RoCE v2 over IPv4. */
static int choose_gid(const char* device, struct ibv_context* context, int length) {
  for (int i = 0; i < length; ++i) {
    char path[PATH_MAX], type[32] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/gid_attrs/types/%d", device, i);
    FILE* file = fopen(path, "r");
    if (file == NULL) continue;
    CHECK(fgets(type, sizeof type, file) != NULL);
    fclose(file);
    union ibv_gid gid;
    CHECK(verbs_query_gid(context, 1, i, &gid) == 0);
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (strcmp(type, "RoCE v2\n") == 0 && memcmp(gid.raw, mapped, sizeof mapped) == 0) return i;
  }
  DIE("no GID of RoCE v2 over IPv4 in sysfs");
}

static int meet(const char* port, const char* server) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *at;
  hints.ai_flags = server == NULL ? AI_PASSIVE : 0;
  CHECK(getaddrinfo(server, port, &hints, &at) == 0);
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (server != NULL) {
    CHECK(connect(fd, at->ai_addr, at->ai_addrlen) == 0);
    return fd;
  }
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  CHECK(bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1) == 0);
  fd = accept(fd, NULL, NULL);
  CHECK(fd >= 0);
  return fd;
}

struct Address {
  union ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t buffer;
};

enum { kSize = 1 << 20, kRounds = 20 };

static void connect_qp(struct ibv_qp* qp, int gid_index, enum ibv_mtu mtu,
                       const struct Address* peer) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  CHECK(verbs_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu;
  attr.dest_qp_num = peer->qpn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer->gid;
  attr.ah_attr.grh.sgid_index = (uint8_t)gid_index;
  attr.ah_attr.grh.hop_limit = 255;
  CHECK(verbs_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 18;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  CHECK(verbs_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void complete(struct ibv_cq* cq, enum ibv_wc_opcode opcode, int round) {
  struct ibv_wc wc;
  int got;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
    ;
  CHECK(got == 1);
  if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode)
    DIE("round %d: status %d, opcode %d", round, wc.status, wc.opcode);
  if (opcode == IBV_WC_RECV_RDMA_WITH_IMM) CHECK((int)wc.imm_data == round);
}

int main(int argc, char** argv) {
  if (argc < 3) DIE("usage: dlvsym DEVICE PORT [SERVER]");
  const int sends = argc > 3;
  load();
  CHECK(verbs_fork_init() == 0);

  int count = 0;
  struct ibv_context* context = NULL;
  struct ibv_device** list = verbs_get_device_list(&count);
  for (int i = 0; list != NULL && i < count; ++i)
    if (strcmp(verbs_get_device_name(list[i]), argv[1]) == 0) context = verbs_open_device(list[i]);
  if (context == NULL) DIE("there is no device %s", argv[1]);
  verbs_free_device_list(list);
  struct ibv_device_attr device;
  struct ibv_port_attr port;
  CHECK(verbs_query_device(context, &device) == 0 && verbs_query_port(context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
  char path[PATH_MAX], real[PATH_MAX];
  snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", argv[1]);
  CHECK(realpath(path, real) != NULL);
  const int gid_index = choose_gid(argv[1], context, port.gid_tbl_len);

  struct ibv_pd* pd = verbs_alloc_pd(context);
  CHECK(pd != NULL);
  struct ibv_cq* cq = verbs_create_cq(context, 64, NULL, NULL, 0);
  CHECK(cq != NULL);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  init.cap.max_send_wr = init.cap.max_recv_wr = 32;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  struct ibv_qp* qp = verbs_create_qp(pd, &init);
  CHECK(qp != NULL);
  struct ibv_ece ece;
  printf("ece %s\n", verbs_query_ece != NULL && verbs_query_ece(qp, &ece) == 0 ? "yes" : "no");

  unsigned char* buffer = NULL;
  CHECK(posix_memalign((void**)&buffer, 4096, kSize) == 0);
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  struct ibv_mr* mr = verbs_reg_mr_iova2 != NULL
                          ? verbs_reg_mr_iova2(pd, buffer, kSize, (uintptr_t)buffer,
                                               access | IBV_ACCESS_RELAXED_ORDERING)
                          : verbs_reg_mr(pd, buffer, kSize, (int)access);
  CHECK(mr != NULL);

  const int fd = meet(argv[2], sends ? argv[3] : NULL);
  struct Address mine = {.qpn = qp->qp_num, .rkey = mr->rkey, .buffer = (uintptr_t)buffer}, peer;
  CHECK(verbs_query_gid(context, 1, gid_index, &mine.gid) == 0);
  CHECK(write(fd, &mine, sizeof mine) == sizeof mine);
  CHECK(recv(fd, &peer, sizeof peer, MSG_WAITALL) == sizeof peer);
  connect_qp(qp, gid_index, port.active_mtu, &peer);

  for (int round = 0; round < kRounds; ++round) {
    char turn = 0;
    if (sends) {
      CHECK(read(fd, &turn, 1) == 1); /* the receive is posted */
      memset(buffer, round + 1, kSize);
      struct ibv_sge sge = {(uintptr_t)buffer, kSize, mr->lkey};
      struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
      wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.imm_data = (uint32_t)round;
      wr.wr.rdma.remote_addr = peer.buffer;
      wr.wr.rdma.rkey = peer.rkey;
      CHECK(ibv_post_send(qp, &wr, &bad) == 0);
      complete(cq, IBV_WC_RDMA_WRITE, round);
    } else {
      struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
      CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
      CHECK(write(fd, &turn, 1) == 1);
      complete(cq, IBV_WC_RECV_RDMA_WITH_IMM, round);
      for (int at = 0; at < kSize; ++at) CHECK(buffer[at] == round + 1);
    }
  }
  char end = 0;
  CHECK(write(fd, &end, 1) == 1 && read(fd, &end, 1) >= 0);
  CHECK(verbs_destroy_qp(qp) == 0 && verbs_dereg_mr(mr) == 0 && verbs_destroy_cq(cq) == 0 &&
        verbs_dealloc_pd(pd) == 0 && verbs_close_device(context) == 0);
  puts("done");
  return 0;
}
