// Extended reliable connections: a target queue pair, and the SRQs of its domain that receive its
// messages, also those of other processes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

class Domain {
 public:
  // Of the file, or private to this process.
  explicit Domain(ibv_context* context, int file = -1) {
    xrcd = open(context, file, O_CREAT);
    CHECK(xrcd != nullptr);
  }
  ~Domain() { CHECK_EQ(ibv_close_xrcd(xrcd), 0); }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  static ibv_xrcd* open(ibv_context* context, int file, int oflags) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = file;
    attr.oflags = oflags;
    errno = 0;
    return ibv_open_xrcd(context, &attr);
  }
  ibv_xrcd* xrcd;
};

class XrcSrq {
 public:
  XrcSrq(const Side& side, const Domain& domain, ibv_cq* cq, ibv_pd* pd = nullptr) {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {32, 2, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd != nullptr ? pd : side.pd;
    attr.xrcd = domain.xrcd;
    attr.cq = cq;
    srq = ibv_create_srq_ex(attr.pd->context, &attr);
    CHECK(srq != nullptr);
    CHECK_EQ(ibv_get_srq_num(srq, &number), 0);
  }
  ~XrcSrq() { CHECK_EQ(ibv_destroy_srq(srq), 0); }
  XrcSrq(const XrcSrq&) = delete;
  XrcSrq& operator=(const XrcSrq&) = delete;
  void receive(uint64_t wr_id, ibv_sge sge) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ibv_srq* srq;
  uint32_t number = 0;
};

QpOptions target_of(const Domain& domain) {
  QpOptions options;
  options.type = IBV_QPT_XRC_RECV;
  options.xrcd = domain.xrcd;
  return options;
}

QpOptions initiator() {
  QpOptions options;
  options.type = IBV_QPT_XRC_SEND;
  options.max_recv_wr = 0;
  return options;
}

// a is the initiator, b the target; a has no other queue pair, b no SRQ yet.
struct Line {
  explicit Line(const Side& given, int file = -1)
      : side(given), cq(given), srq_cq(given), domain(given.context, file), buffer(given, 65536) {
    qp = std::make_unique<Qp>(side, cq, side.is_a() ? initiator() : target_of(domain));
    qp->connect();
  }
  void send(uint64_t wr_id, uint32_t srqn, size_t offset, size_t length,
            ibv_wr_opcode opcode = IBV_WR_SEND, const Remote& remote = {}) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.imm_data = 0x1234;
    wr.qp_type.xrc.remote_srqn = srqn;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = remote.addr;
      wr.wr.atomic.rkey = remote.rkey;
      wr.wr.atomic.compare_add = 5;
    } else {
      wr.wr.rdma.remote_addr = remote.addr;
      wr.wr.rdma.rkey = remote.rkey;
    }
    CHECK_EQ(qp->try_send(wr, {buffer.sge(offset, length)}), 0);
  }
  const Side& side;
  Cq cq, srq_cq;
  Domain domain;
  Buffer buffer;
  std::unique_ptr<Qp> qp;
};

struct Place {
  uint32_t first, second;
  Remote remote;
};

}  // namespace

CONFORMANCE_TEST(xrc, operations) {
  Line line(side);
  if (side.is_a()) {
    const auto there = side.hear<Place>();
    fill(line.buffer.data, 65536, 1);
    line.send(1, there.first, 0, 100);
    line.send(2, there.second, 100, 200);
    line.send(3, there.first, 300, 50, IBV_WR_SEND_WITH_IMM);
    line.send(4, there.second, 0, 4096, IBV_WR_RDMA_WRITE, there.remote);
    line.send(5, there.second, 0, 4096, IBV_WR_RDMA_WRITE_WITH_IMM, there.remote);
    for (uint64_t id = 1; id <= 5; ++id) line.cq.expect(id);
    side.meet(1);
    CHECK_EQ(
        static_cast<int>((line.send(6, there.first, 8192, 4096, IBV_WR_RDMA_READ, there.remote),
                          line.cq.expect(6).opcode)),
        static_cast<int>(IBV_WC_RDMA_READ));
    check_filled(line.buffer.data + 8192, 4096, 1);
    line.send(7, there.first, 0, 8, IBV_WR_ATOMIC_FETCH_AND_ADD, there.remote);
    line.cq.expect(7);
    side.meet(2);
  } else {
    Cq other_cq(side);
    XrcSrq first(side, line.domain, line.srq_cq.cq), second(side, line.domain, other_cq.cq);
    CHECK(first.number != second.number);
    for (uint64_t id = 10; id < 12; ++id) first.receive(id, line.buffer.sge(id * 1024, 1024));
    for (uint64_t id = 20; id < 22; ++id) second.receive(id, line.buffer.sge(id * 1024, 1024));
    side.tell(Place{first.number, second.number, remote_of(line.buffer)});
    const auto check = [&](const ibv_wc& wc, uint32_t length, size_t position) {
      CHECK_EQ(wc.byte_len, length);
      CHECK_EQ(wc.qp_num, line.qp->qp->qp_num);
      check_filled(line.buffer.data + wc.wr_id * 1024, length, 1, position);
    };
    check(line.srq_cq.expect(10), 100, 0);
    check(other_cq.expect(20), 200, 100);
    const ibv_wc with_imm = line.srq_cq.expect(11);
    check(with_imm, 50, 300);
    CHECK_EQ(with_imm.imm_data, 0x1234u);
    CHECK_EQ(static_cast<int>(other_cq.expect(21).opcode),
             static_cast<int>(IBV_WC_RECV_RDMA_WITH_IMM));
    check_filled(line.buffer.data, 4096, 1);
    uint64_t before = 0, after = 0;
    std::memcpy(&before, line.buffer.data, 8);
    side.meet(1);
    side.meet(2);
    std::memcpy(&after, line.buffer.data, 8);
    CHECK_EQ(after, before + 5);
  }
}

// An SRQ outside of the domain, or destroyed; and the recovery.
CONFORMANCE_TEST(xrc, no_such_srq) {
  Line line(side);
  for (int round = 0; round < 3; ++round) {
    if (side.is_a()) {
      line.send(1, side.hear<uint32_t>(), 0, 8);
      if (round == 2) {
        line.cq.expect_none(30);  // the SRQ exists, but is empty
        side.tell_word(1);
      }
      line.cq.expect(1, IBV_WC_REM_INV_REQ_ERR);
      line.qp->await_state(IBV_QPS_ERR);
    } else {
      Domain other(side.context);
      auto srq = std::make_unique<XrcSrq>(side, round == 0 ? other : line.domain, line.srq_cq.cq);
      const uint32_t number = srq->number;
      if (round == 1) srq.reset();
      side.tell(number);
      if (round == 2) side.await_word(1);
      if (round == 2) srq.reset();
      CHECK(expect_async_event(side, IBV_EVENT_QP_REQ_ERR) == line.qp->qp);
      line.qp->await_state(IBV_QPS_ERR);
      line.srq_cq.expect_none(5);
    }
    line.qp->reconnect();
    if (side.is_a()) {
      line.send(2, side.hear<uint32_t>(), 0, 8);
      line.cq.expect(2);
    } else {
      XrcSrq srq(side, line.domain, line.srq_cq.cq);
      srq.receive(3, line.buffer.sge(0, 64));
      side.tell(srq.number);
      line.srq_cq.expect(3);
    }
    side.meet(2);
  }
}

CONFORMANCE_TEST(xrc, receives_posted_late) {
  Line line(side);
  if (side.is_a()) {
    const auto srqn = side.hear<uint32_t>();
    for (uint64_t id = 1; id <= 3; ++id) line.send(id, srqn, 0, 8);
    line.cq.expect_none(30);
    side.tell_word(1);
    for (uint64_t id = 1; id <= 3; ++id) line.cq.expect(id);
  } else {
    XrcSrq srq(side, line.domain, line.srq_cq.cq);
    side.tell(srq.number);
    side.await_word(1);
    for (uint64_t id = 1; id <= 3; ++id) srq.receive(id, line.buffer.sge(0, 64));
    for (uint64_t id = 1; id <= 3; ++id) line.srq_cq.expect(id);
  }
  side.meet(2);
}

CONFORMANCE_TEST(xrc, domains) {
  char path[] = "/tmp/xrc-XXXXXX";
  const int file = ::mkstemp(path);
  CHECK(file >= 0);
  CHECK_EQ(::unlink(path), 0);
  CHECK(Domain::open(side.context, file, 0) == nullptr);
  CHECK_EQ(errno, EAGAIN);
  CHECK(Domain::open(side.context, 9999, O_CREAT) == nullptr);
  CHECK_EQ(errno, EBADF);
  ibv_xrcd* first = Domain::open(side.context, file, O_CREAT | O_EXCL);
  CHECK(first != nullptr);
  CHECK(Domain::open(side.context, file, O_CREAT | O_EXCL) == nullptr);
  CHECK_EQ(errno, EINVAL);
  ibv_xrcd* second = Domain::open(side.context, file, 0);
  CHECK(second != nullptr);
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = first;
  ibv_qp* target = ibv_create_qp_ex(side.context, &init);
  CHECK(target != nullptr);
  CHECK_EQ(ibv_close_xrcd(first), EBUSY);
  ibv_qp_open_attr open{};
  open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open.qp_num = target->qp_num;
  open.xrcd = second;
  open.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* again = ibv_open_qp(side.context, &open);
  CHECK(again != nullptr);
  CHECK_EQ(again->qp_num, target->qp_num);
  open.qp_num ^= 0x800000;
  CHECK(ibv_open_qp(side.context, &open) == nullptr);
  // An SRQ of the domain cannot serve another kind of queue pair.
  {
    Cq cq(side);
    Domain own(side.context);
    XrcSrq srq(side, own, cq.cq);
    ibv_qp_init_attr plain{};
    plain.send_cq = plain.recv_cq = cq.cq;
    plain.srq = srq.srq;
    plain.cap = {1, 1, 1, 1, 0};
    plain.qp_type = IBV_QPT_RC;
    CHECK(ibv_create_qp(side.pd, &plain) == nullptr);
    CHECK_EQ(errno, EINVAL);
  }
  // Nothing can be posted to it.
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  CHECK_EQ(ibv_post_recv(target, &receive, &bad_receive), EINVAL);
  ibv_send_wr send{}, *bad_send = nullptr;
  CHECK_EQ(ibv_post_send(target, &send, &bad_send), EINVAL);
  CHECK_EQ(ibv_destroy_qp(target), 0);
  CHECK_EQ(ibv_close_xrcd(first), 0);
  CHECK_EQ(ibv_close_xrcd(second), EBUSY);
  ibv_qp_attr attr{};
  CHECK_EQ(ibv_query_qp(again, &attr, IBV_QP_STATE, reinterpret_cast<ibv_qp_init_attr*>(&init)), 0);
  CHECK_EQ(ibv_destroy_qp(again), 0);
  CHECK_EQ(ibv_close_xrcd(second), 0);
  CHECK(Domain::open(side.context, file, 0) == nullptr);
  ::close(file);
}

// b's child has an SRQ in b's domain, and opens b's target; b then destroys its own.
CONFORMANCE_TEST(xrc, domain_of_two_processes) {
  char path[] = "/tmp/xrc-XXXXXX";
  const int file = ::mkstemp(path);
  CHECK(file >= 0);
  CHECK_EQ(::unlink(path), 0);
  int to_child[2], to_parent[2];
  CHECK_EQ(::pipe(to_child), 0);
  CHECK_EQ(::pipe(to_parent), 0);
  const auto put = [](const int(&pipe)[2], uint32_t word) {
    CHECK_EQ(::write(pipe[1], &word, sizeof word), ssize_t{sizeof word});
  };
  const auto take = [](const int(&pipe)[2]) {
    uint32_t word = 0;
    CHECK_EQ(::read(pipe[0], &word, sizeof word), ssize_t{sizeof word});
    return word;
  };
  Line line(side, file);
  if (side.is_a()) {
    const auto srqn = side.hear<uint32_t>();
    fill(line.buffer.data, 1000, 3);
    for (uint64_t id = 1; id <= 2; ++id) {
      line.send(id, srqn, 0, 1000);
      line.cq.expect(id);
      side.meet(1);
    }
    // The child has ended, and with it its SRQ and the target.
    line.send(3, srqn, 0, 8);
    const ibv_wc wc = line.cq.wait();
    CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_RETRY_EXC_ERR ||
          wc.status == IBV_WC_WR_FLUSH_ERR);
    side.meet(2);
    return;
  }
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    ibv_device** devices = ibv_get_device_list(nullptr);
    ibv_context* context = ibv_open_device(devices[0]);
    CHECK(context != nullptr);
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    CHECK(pd != nullptr && cq != nullptr);
    Domain domain(context, file);
    {
      XrcSrq srq(side, domain, cq, pd);
      Buffer buffer(side, 4096, kAllAccess, pd);
      ibv_qp_open_attr open{};
      open.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
      open.qp_num = line.qp->qp->qp_num;
      open.xrcd = domain.xrcd;
      open.qp_type = IBV_QPT_XRC_RECV;
      ibv_qp* target = ibv_open_qp(context, &open);
      CHECK(target != nullptr);
      for (uint64_t id = 1; id <= 2; ++id) srq.receive(id, buffer.sge(0, 4096));
      put(to_parent, srq.number);
      for (uint64_t id = 1; id <= 2; ++id) {
        ibv_wc wc{};
        while (ibv_poll_cq(cq, 1, &wc) == 0) ::sched_yield();
        CHECK_EQ(static_cast<int>(wc.status), 0);
        CHECK_EQ(wc.wr_id, id);
        CHECK_EQ(wc.byte_len, 1000u);
        CHECK_EQ(wc.qp_num, open.qp_num);
        check_filled(buffer.data, 1000, 3);
        std::memset(buffer.data, 0, 1000);
        put(to_parent, 7);
        CHECK_EQ(take(to_child), 8u);
      }
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      CHECK_EQ(ibv_query_qp(target, &attr, IBV_QP_STATE, &init), 0);
      CHECK_EQ(static_cast<int>(attr.qp_state), static_cast<int>(IBV_QPS_RTS));
      CHECK_EQ(ibv_destroy_qp(target), 0);
    }
    ::_exit(0);
  }
  side.tell(take(to_parent));
  CHECK_EQ(take(to_parent), 7u);
  line.qp.reset();  // the child has it open
  side.meet(1);
  put(to_child, 8);
  CHECK_EQ(take(to_parent), 7u);
  put(to_child, 8);
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  side.meet(1);
  side.meet(2);
}

}  // namespace conformance
