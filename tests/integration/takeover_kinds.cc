// Uses objects of one kind until SIGTERM while the daemon is replaced: what was created before the
// first death is used until the end, and all data is right.
//
//   vrdma_takeover_kinds window|xrc|imported DEVICE GID_INDEX
//   vrdma_takeover_kinds frames|mads DEVICE GID_INDEX answer
//   vrdma_takeover_kinds frames|mads DEVICE GID_INDEX MAC|GID
//
// Prints "ready" when all is created. At SIGUSR1 it destroys what others still use. Exits with 0 on
// success; otherwise prints what failed.
#include "tests/integration/takeover_kinds.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace vrdma::kinds {
namespace {

constexpr size_t kBytes = 4096;
struct Memory {
  Memory(ibv_pd* pd, int access) {
    mr = made(ibv_reg_mr(pd, bytes.data(), bytes.size(), access), "register");
  }
  [[nodiscard]] ibv_sge sge(size_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(bytes.data()) + offset, length, mr->lkey};
  }
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes);
  ibv_mr* mr = nullptr;
};

void post_message(ibv_qp* qp, ibv_sge sge, ibv_wr_opcode opcode, uint64_t addr = 0,
                  uint32_t rkey = 0) {
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.wr.rdma.remote_addr = addr;
  wr.wr.rdma.rkey = rkey;
  post(qp, wr);
}
ibv_qp* make_qp(ibv_pd* pd, ibv_cq* cq, ibv_qp_type type = IBV_QPT_RC, ibv_xrcd* xrcd = nullptr) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {16, 16, 1, 1, 0};
  attr.qp_type = type;
  attr.sq_sig_all = 1;
  attr.comp_mask = type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
  attr.pd = type == IBV_QPT_XRC_RECV ? nullptr : pd;
  attr.xrcd = xrcd;
  return made(ibv_create_qp_ex(pd->context, &attr), "create a QP");
}

// Moves `qp` to RTS, connected to the queue pair `peer` of the same device.
void connect(ibv_qp* qp, uint32_t peer, uint8_t gid_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE;
  expect_0(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
           "to INIT");
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  expect_0(ibv_query_gid(qp->context, 1, gid_index, &attr.ah_attr.grh.dgid), "query the GID");
  attr.ah_attr.grh.sgid_index = gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  const int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const int responds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  expect_0(ibv_modify_qp(qp, &attr, to_rtr | (qp->qp_type == IBV_QPT_XRC_SEND ? 0 : responds)),
           "to RTR");
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  const int requests = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  expect_0(ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN |
                             (qp->qp_type == IBV_QPT_XRC_RECV ? 0 : requests)),
           "to RTS");
}

// --- memory windows ---
// Of type 1, bound once; of type 2, bound anew in each round, and invalidated by its owner and by
// its peer in turn.
uint64_t use_windows(const Options& options) {
  ibv_context* context = open_device(options.device);
  ibv_pd* pd = made(ibv_alloc_pd(context), "allocate a PD");
  ibv_cq *ours = made(ibv_create_cq(context, 16, nullptr, nullptr, 0), "a CQ"),
         *theirs = made(ibv_create_cq(context, 16, nullptr, nullptr, 0), "a CQ");
  ibv_qp *owner = make_qp(pd, ours), *user = make_qp(pd, theirs);
  connect(owner, user->qp_num, options.gid_index);
  connect(user, owner->qp_num, options.gid_index);
  Memory target(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND), source(pd, 0);
  const auto bound_at = [&](size_t offset) {
    return ibv_mw_bind_info{target.mr, reinterpret_cast<uint64_t>(target.bytes.data()) + offset, 64,
                            IBV_ACCESS_REMOTE_WRITE};
  };
  ibv_mw* lasting = made(ibv_alloc_mw(pd, IBV_MW_TYPE_1), "allocate a window");
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = bound_at(0);
  expect_0(ibv_bind_mw(owner, lasting, &bind), "bind a window of type 1");
  success(ours, "bind");
  ibv_mw* window = made(ibv_alloc_mw(pd, IBV_MW_TYPE_2), "allocate a window");
  const auto write = [&](size_t offset, uint32_t rkey, uint64_t round) {
    fill(source.bytes.data(), 64, round);
    post_message(user, source.sge(0, 64), IBV_WR_RDMA_WRITE, bound_at(offset).addr, rkey);
    success(theirs, "write through a window");
    check(target.bytes.data() + offset, 64, round, "other data is in the window");
  };
  std::puts("ready");
  uint64_t round = 0;
  for (; g_over == 0; ++round) {
    write(0, lasting->rkey, round);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    wr.bind_mw.bind_info = bound_at(1024);
    post(owner, wr);
    success(ours, "bind a window of type 2");
    window->rkey = wr.bind_mw.rkey;
    write(1024, window->rkey, round + 1);
    wr = {};
    if (round % 2 == 0) {
      wr.opcode = IBV_WR_LOCAL_INV;
      wr.invalidate_rkey = window->rkey;
      post(owner, wr);
      success(ours, "invalidate");
    } else {
      post_receive(owner, target.sge(2048, 64));
      wr.opcode = IBV_WR_SEND_WITH_INV;
      wr.invalidate_rkey = window->rkey;
      post(user, wr);
      success(theirs, "send and invalidate");
      const ibv_wc wc = success(ours, "receive");
      expect((wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == window->rkey,
             "another key is invalidated");
    }
  }
  // The key is no longer valid, whichever daemon was told so.
  post_message(user, source.sge(0, 64), IBV_WR_RDMA_WRITE, bound_at(1024).addr, window->rkey);
  expect(completion(theirs).status == IBV_WC_REM_ACCESS_ERR, "an invalid key is accepted");
  for (ibv_qp* qp : {owner, user}) expect_0(ibv_destroy_qp(qp), "destroy a QP");
  for (ibv_mw* mw : {window, lasting}) expect_0(ibv_dealloc_mw(mw), "deallocate a window");
  expect_0(ibv_dereg_mr(target.mr), "deregister");
  return round;
}

// --- XRC ---
struct XrcSession {
  XrcSession(const std::string& device, int file) {
    context = open_device(device);
    pd = made(ibv_alloc_pd(context), "allocate a PD");
    cq = made(ibv_create_cq(context, 64, nullptr, nullptr, 0), "a CQ");
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = file;
    attr.oflags = O_CREAT;
    xrcd = made(ibv_open_xrcd(context, &attr), "open an XRC domain");
    memory = std::make_unique<Memory>(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_srq_init_attr_ex init{};
    init.attr = {16, 1, 0};
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = pd;
    init.xrcd = xrcd;
    init.cq = cq;
    srq = made(ibv_create_srq_ex(context, &init), "create an XRC SRQ");
    expect_0(ibv_get_srq_num(srq, &number), "the number of an SRQ");
    for (uint64_t i = 0; i < 8; ++i) receive(i);
  }
  void receive(uint64_t id) {
    ibv_recv_wr wr{}, *bad = nullptr;
    ibv_sge sge = memory->sge(id * 64, 64);
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    expect_0(ibv_post_srq_recv(srq, &wr, &bad), "post to an SRQ");
  }
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_xrcd* xrcd;
  std::unique_ptr<Memory> memory;
  ibv_srq* srq;
  uint32_t number = 0;
};

// Two sessions share a domain by a file: a target that both have open, and an SRQ of each.
uint64_t use_xrc(const Options& options) {
  char path[] = "/tmp/vrdma-takeover-XXXXXX";
  const int file = ::mkstemp(path);
  expect(file >= 0, "a file for the domain");
  ::unlink(path);
  std::array<XrcSession, 2> sessions{XrcSession(options.device, file),
                                     XrcSession(options.device, file)};
  ibv_qp* target = make_qp(sessions[0].pd, nullptr, IBV_QPT_XRC_RECV, sessions[0].xrcd);
  ibv_qp* initiator = make_qp(sessions[0].pd, sessions[0].cq, IBV_QPT_XRC_SEND);
  connect(target, initiator->qp_num, options.gid_index);
  connect(initiator, target->qp_num, options.gid_index);
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = target->qp_num;
  open.xrcd = sessions[1].xrcd;
  open.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* opened = made(ibv_open_qp(sessions[1].context, &open), "open the target");
  ibv_cq* sent = made(ibv_create_cq(sessions[0].context, 16, nullptr, nullptr, 0), "a CQ");
  expect_0(ibv_destroy_qp(initiator), "destroy the initiator");
  initiator = make_qp(sessions[0].pd, sent, IBV_QPT_XRC_SEND);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  expect_0(ibv_modify_qp(opened, &reset, IBV_QP_STATE), "reset the target");
  connect(opened, initiator->qp_num, options.gid_index);
  connect(initiator, target->qp_num, options.gid_index);
  Memory source(sessions[0].pd, 0);
  std::puts("ready");
  uint64_t round = 0;
  for (; g_over == 0; ++round) {
    if (target != nullptr && g_half != 0) {
      // The other session keeps it.
      expect_0(ibv_destroy_qp(target), "close the target");
      target = nullptr;
    }
    XrcSession& to = sessions[round % 2];
    fill(source.bytes.data(), 64, round);
    ibv_send_wr wr{};
    ibv_sge sge = source.sge(0, 64);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.qp_type.xrc.remote_srqn = to.number;
    post(initiator, wr);
    success(sent, "send to an SRQ");
    const ibv_wc wc = success(to.cq, "receive");
    expect(wc.byte_len == 64 && wc.qp_num == opened->qp_num, "another message is received");
    check(to.memory->bytes.data() + wc.wr_id * 64, 64, round, "other data is received");
    to.receive(wc.wr_id);
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.memory->bytes.data()) + 2048;
    wr.wr.rdma.rkey = to.memory->mr->rkey;
    post(initiator, wr);
    success(sent, "write by way of an SRQ");
    check(to.memory->bytes.data() + 2048, 64, round, "other data is written");
  }
  ibv_wc none{};
  for (const XrcSession& session : sessions)
    expect(ibv_poll_cq(session.cq, 1, &none) == 0, "a message came twice");
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  expect_0(ibv_query_qp(opened, &attr, IBV_QP_STATE, &init), "query the target");
  expect(attr.qp_state == IBV_QPS_RTS, "the target is in another state");
  expect_0(ibv_destroy_qp(initiator), "destroy the initiator");
  expect_0(ibv_destroy_qp(opened), "close the target");
  for (const XrcSession& session : sessions) {
    expect_0(ibv_destroy_srq(session.srq), "destroy the SRQ");
    expect_0(ibv_close_xrcd(session.xrcd), "close the domain");
  }
  return round;
}

// --- imports ---
// A second session sends from memory that it imports from the first.
uint64_t use_imported(const Options& options) {
  ibv_context* exporter = open_device(options.device);
  ibv_pd* pd = made(ibv_alloc_pd(exporter), "allocate a PD");
  Memory memory(pd, IBV_ACCESS_LOCAL_WRITE);
  ibv_context* importer = made(ibv_import_device(::dup(exporter->cmd_fd)), "import the device");
  ibv_pd* imported_pd = made(ibv_import_pd(importer, pd->handle), "import the PD");
  ibv_mr* imported = made(ibv_import_mr(imported_pd, memory.mr->handle), "import the region");
  ibv_cq* cq = made(ibv_create_cq(importer, 16, nullptr, nullptr, 0), "a CQ");
  ibv_qp *one = make_qp(imported_pd, cq), *two = make_qp(imported_pd, cq);
  connect(one, two->qp_num, options.gid_index);
  connect(two, one->qp_num, options.gid_index);
  std::puts("ready");
  uint64_t round = 0;
  const auto place = [&](size_t offset) {
    ibv_sge sge = memory.sge(offset, 64);
    sge.lkey = imported->lkey;
    return sge;
  };
  for (; g_over == 0; ++round) {
    fill(memory.bytes.data(), 64, round);
    post_receive(two, place(1024));
    post_message(one, place(0), IBV_WR_SEND);
    for (int i = 0; i < 2; ++i) success(cq, "send from imported memory");
    check(memory.bytes.data() + 1024, 64, round, "other data is received");
  }
  for (ibv_qp* qp : {one, two}) expect_0(ibv_destroy_qp(qp), "destroy a QP");
  ibv_unimport_mr(imported);
  ibv_unimport_pd(imported_pd);
  expect_0(ibv_close_device(importer), "close the imported device");
  expect_0(ibv_dereg_mr(memory.mr), "deregister");
  return round;
}

}  // namespace
}  // namespace vrdma::kinds

int main(int argc, char** argv) {
  using namespace vrdma::kinds;  // NOLINT(google-build-using-namespace): the program
  if (argc < 4) return 2;
  std::signal(SIGTERM, [](int) { g_over = 1; });
  std::signal(SIGUSR1, [](int) { g_half = 1; });
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string kind = argv[1];
  Options options;
  options.device = argv[2];
  options.gid_index = static_cast<uint8_t>(std::atoi(argv[3]));
  if (argc > 4) options.peer = argv[4];
  uint64_t rounds = 0;
  if (kind == "window") rounds = use_windows(options);
  if (kind == "xrc") rounds = use_xrc(options);
  if (kind == "imported") rounds = use_imported(options);
  if (kind == "frames") rounds = use_frames(options);
  if (kind == "mads") rounds = use_mads(options);
  expect(rounds > 0, "nothing was done");
  std::printf("%llu rounds\n", static_cast<unsigned long long>(rounds));
  return 0;
}
