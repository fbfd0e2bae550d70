// Errors that verbs return at once: changes of state, posting, destroying.
#include <fcntl.h>

#include <array>
#include <cerrno>
#include <functional>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

// The attributes of each step RESET -> INIT -> RTR -> RTS by type (ibv_modify_qp(3)).
struct Step {
  ibv_qp_state to;
  std::vector<int> required;
};

std::vector<Step> steps(ibv_qp_type type) {
  if (type == IBV_QPT_UD)
    return {{IBV_QPS_INIT, {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY}},
            {IBV_QPS_RTR, {}},
            {IBV_QPS_RTS, {IBV_QP_SQ_PSN}}};
  std::vector<Step> all{{IBV_QPS_INIT, {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS}},
                        {IBV_QPS_RTR, {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN}},
                        {IBV_QPS_RTS, {IBV_QP_SQ_PSN}}};
  const auto also = [](Step& step, std::initializer_list<int> bits) {
    step.required.insert(step.required.end(), bits);
  };
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV)
    also(all[1], {IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER});
  if (type != IBV_QPT_UC) also(all[2], {IBV_QP_TIMEOUT});
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
    also(all[2], {IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_MAX_QP_RD_ATOMIC});
  return all;
}

// Runs `act` with a queue pair of each type.
void with_each_type(const Side& side, const std::function<void(ibv_qp_type, Qp&)>& act) {
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = -1;
  init.oflags = O_CREAT;
  ibv_xrcd* xrcd = ibv_open_xrcd(side.context, &init);
  CHECK(xrcd != nullptr);
  for (const ibv_qp_type type :
       {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
    Cq cq(side);
    QpOptions options;
    options.type = type;
    options.xrcd = xrcd;
    Qp qp(side, cq, options);
    act(type, qp);
  }
  CHECK_EQ(ibv_close_xrcd(xrcd), 0);
}

int mask_of(const Step& step) {
  int mask = IBV_QP_STATE;
  for (const int bit : step.required) mask |= bit;
  return mask;
}

ibv_qp_attr sound(const Side& side, ibv_qp_state to) {
  ibv_qp_attr attr{};
  attr.qp_state = to;
  attr.port_num = 1;
  attr.qkey = 0x1234;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = 0x777;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = side.gid;
  attr.ah_attr.grh.sgid_index = side.gid_index;
  attr.ah_attr.grh.hop_limit = 1;
  attr.timeout = 10;
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
  return attr;
}

void modify_refused(Qp& qp, ibv_qp_attr attr, int mask) {
  const ibv_qp_state before = qp.state();
  CHECK_EQ(ibv_modify_qp(qp.qp, &attr, mask), EINVAL);
  CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(before));
}

}  // namespace

CONFORMANCE_TEST(errors, modify_needs_its_attributes) {
  with_each_type(side, [&](ibv_qp_type type, Qp& qp) {
    for (const Step& step : steps(type)) {
      ibv_qp_attr attr = sound(side, step.to);
      for (const int bit : step.required) modify_refused(qp, attr, mask_of(step) & ~bit);
      // An attribute that does not belong here.
      modify_refused(qp, attr, mask_of(step) | IBV_QP_CAP);
      if (step.to == IBV_QPS_INIT) modify_refused(qp, attr, mask_of(step) | IBV_QP_SQ_PSN);
      if (step.to == IBV_QPS_RTR) modify_refused(qp, attr, mask_of(step) | IBV_QP_PORT);
      if (step.to == IBV_QPS_RTS) modify_refused(qp, attr, mask_of(step) | IBV_QP_RQ_PSN);
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, mask_of(step)), 0);
      CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(step.to));
      CHECK_EQ(static_cast<int>(qp.qp->state), static_cast<int>(step.to));
    }
  });
}

// Programs that set up the halves of XRC as they do RC; the values do not count either.
CONFORMANCE_TEST(errors, modify_ignores_the_other_half_of_xrc) {
  with_each_type(side, [&](ibv_qp_type type, Qp& qp) {
    if (type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV) return;
    const auto as_of_rc = steps(IBV_QPT_RC);
    for (const Step& step : as_of_rc) {
      ibv_qp_attr attr = sound(side, step.to);
      const bool of_other = (type == IBV_QPT_XRC_SEND) == (step.to == IBV_QPS_RTR);
      if (of_other) {
        attr.min_rnr_timer = attr.retry_cnt = attr.rnr_retry = 255;
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 255;
      }
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, mask_of(step)), 0);
    }
    CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(IBV_QPS_RTS));
    ibv_qp_attr now{};
    ibv_qp_init_attr init{};
    CHECK_EQ(ibv_query_qp(qp.qp, &now, 0, &init), 0);
    CHECK_EQ(
        static_cast<int>(type == IBV_QPT_XRC_SEND ? now.max_dest_rd_atomic : now.max_rd_atomic), 0);
  });
}

CONFORMANCE_TEST(errors, modify_skips_no_state) {
  with_each_type(side, [&](ibv_qp_type type, Qp& qp) {
    const auto all = steps(type);
    // From each state to every state that is not its successor; itself, RESET and ERR are legal.
    for (size_t at = 0; at <= all.size(); ++at) {
      for (size_t to = 0; to < all.size(); ++to) {
        if (to == at || to + 1 == at) continue;
        modify_refused(qp, sound(side, all[to].to), mask_of(all[to]));
      }
      if (at < all.size()) {
        modify_refused(qp, sound(side, IBV_QPS_SQD), IBV_QP_STATE);
        modify_refused(qp, sound(side, IBV_QPS_SQE), IBV_QP_STATE);
        ibv_qp_attr attr = sound(side, all[at].to);
        CHECK_EQ(ibv_modify_qp(qp.qp, &attr, mask_of(all[at])), 0);
      }
    }
    // From ERR only RESET is legal.
    qp.to(IBV_QPS_ERR);
    for (const Step& step : all) modify_refused(qp, sound(side, step.to), mask_of(step));
    qp.to(IBV_QPS_RESET);
    qp.to(IBV_QPS_RESET);
    qp.to(IBV_QPS_ERR);
  });
}

CONFORMANCE_TEST(errors, modify_checks_its_values) {
  Cq cq(side);
  Qp qp(side, cq);
  const auto all = steps(IBV_QPT_RC);
  ibv_qp_attr attr = sound(side, IBV_QPS_INIT);
  attr.port_num = 2;
  modify_refused(qp, attr, mask_of(all[0]));
  attr = sound(side, IBV_QPS_INIT);
  attr.pkey_index = 999;
  modify_refused(qp, attr, mask_of(all[0]));
  qp.to_init();
  attr = sound(side, IBV_QPS_RTR);
  attr.ah_attr.grh.sgid_index = 250;
  modify_refused(qp, attr, mask_of(all[1]));
  attr = sound(side, IBV_QPS_RTR);
  attr.ah_attr.is_global = 0;  // RoCE has no LIDs
  modify_refused(qp, attr, mask_of(all[1]));
  attr = sound(side, IBV_QPS_RTR);
  attr.path_mtu = static_cast<ibv_mtu>(7);
  modify_refused(qp, attr, mask_of(all[1]));
  attr = sound(side, IBV_QPS_RTR);
  attr.cur_qp_state = IBV_QPS_RTS;
  modify_refused(qp, attr, mask_of(all[1]) | IBV_QP_CUR_STATE);
}

CONFORMANCE_TEST(errors, posting_in_the_wrong_state) {
  Cq cq(side);
  Qp qp(side, cq);
  Buffer buffer(side, 4096);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  const auto sends = [&] { return qp.try_send(wr, {buffer.sge(0, 8)}); };
  const auto receives = [&] { return qp.try_receive(1, {buffer.sge(0, 8)}); };
  CHECK_EQ(sends(), EINVAL);
  CHECK_EQ(receives(), EINVAL);
  qp.to_init();
  CHECK_EQ(sends(), EINVAL);
  CHECK_EQ(receives(), 0);
  const Endpoint peer = side.exchange(qp.endpoint());
  qp.to_rtr(peer);
  CHECK_EQ(sends(), EINVAL);
  CHECK_EQ(receives(), 0);
  qp.to_rts();
  side.meet(1);
  CHECK_EQ(sends(), 0);
  for (int i = 0; i < 2; ++i) CHECK_EQ(static_cast<int>(cq.wait().status), 0);
  side.meet(2);
}

// A chain that is too long: the part that fits is posted, bad_wr is the first that does not.
CONFORMANCE_TEST(errors, posting_too_many) {
  Cq cq(side, false, 4096);
  QpOptions options;
  options.max_send_wr = options.max_recv_wr = 20;
  Qp qp(side, cq, options);
  Buffer buffer(side, 4096);
  qp.connect();
  ibv_sge sge = buffer.sge(0, 8);
  constexpr size_t kChain = 1000;
  CHECK(qp.cap.max_send_wr >= 20 && qp.cap.max_send_wr < kChain);
  CHECK(qp.cap.max_recv_wr >= 20 && qp.cap.max_recv_wr < kChain);
  if (side.is_a()) {
    std::vector<ibv_send_wr> sends(kChain);
    for (size_t i = 0; i < kChain; ++i) {
      sends[i] = {};
      sends[i].wr_id = i;
      sends[i].next = i + 1 < kChain ? &sends[i + 1] : nullptr;
      sends[i].sg_list = &sge;
      sends[i].num_sge = 1;
      sends[i].opcode = IBV_WR_SEND;  // b has posted no receive: they remain
      sends[i].send_flags = IBV_SEND_SIGNALED;
    }
    ibv_send_wr* bad = nullptr;
    CHECK_EQ(ibv_post_send(qp.qp, sends.data(), &bad), ENOMEM);
    CHECK(bad == &sends[qp.cap.max_send_wr]);
    bad = nullptr;
    CHECK_EQ(ibv_post_send(qp.qp, &sends[kChain - 1], &bad), ENOMEM);
    CHECK(bad == &sends[kChain - 1]);
  }
  side.meet(1);
  if (!side.is_a()) {
    std::vector<ibv_recv_wr> receives(kChain);
    for (size_t i = 0; i < kChain; ++i)
      receives[i] = {i, i + 1 < kChain ? &receives[i + 1] : nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    CHECK_EQ(ibv_post_recv(qp.qp, receives.data(), &bad), ENOMEM);
    CHECK(bad == &receives[qp.cap.max_recv_wr]);
  }
  const uint32_t count =
      std::min(side.exchange(qp.cap.max_recv_wr), std::min(qp.cap.max_send_wr, qp.cap.max_recv_wr));
  for (uint64_t i = 0; i < count; ++i) cq.expect(i);
  side.meet(2);
}

CONFORMANCE_TEST(errors, posting_nonsense) {
  Cq cq(side);
  QpOptions options;
  options.max_sge = 3;
  options.max_inline = 32;
  Qp qp(side, cq, options);
  Buffer buffer(side, 4096);
  qp.connect();
  const ibv_sge sge = buffer.sge(0, 8);
  const std::vector<ibv_sge> many(qp.cap.max_send_sge + 1, sge);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  CHECK(qp.try_send(wr, many) != 0);
  CHECK(qp.try_receive(1, std::vector<ibv_sge>(qp.cap.max_recv_sge + 1, sge)) != 0);
  wr.send_flags = IBV_SEND_INLINE;
  CHECK(qp.try_send(wr, {buffer.sge(0, qp.cap.max_inline_data + 1)}) != 0);
  wr.opcode = static_cast<ibv_wr_opcode>(14);
  CHECK(qp.try_send(wr, {sge}) != 0);
  // None of it was posted, and the queue pair is unchanged.
  cq.expect_none(10);
  qp.receive(1, {sge});
  side.meet(1);
  wr.opcode = IBV_WR_SEND;
  wr.wr_id = 2;
  CHECK_EQ(qp.try_send(wr, {buffer.sge(8, 8)}), 0);
  const uint64_t first = cq.wait().wr_id, second = cq.wait().wr_id;
  CHECK_EQ(first + second, 3u);
  side.meet(2);
}

CONFORMANCE_TEST(errors, opcodes_of_each_type) {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    Cq cq(side);
    QpOptions options;
    options.type = type;
    Qp qp(side, cq, options);
    Buffer buffer(side, 4096);
    qp.connect();
    ibv_send_wr wr{};
    for (const auto opcode :
         {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
      wr.opcode = opcode;
      CHECK(qp.try_send(wr, {buffer.sge(0, 8)}) != 0);
    }
    cq.expect_none(5);
    side.meet(1);
  }
}

CONFORMANCE_TEST(errors, shared_receive_queue_full) {
  Srq srq(side, 8, 2);
  Buffer buffer(side, 4096);
  uint64_t fits = 0;
  while (srq.try_receive(fits, {buffer.sge(0, 8)}) == 0) {
    ++fits;
    CHECK(fits < 1000);
  }
  CHECK(fits >= 8);
  CHECK_EQ(srq.try_receive(fits, {buffer.sge(0, 8)}), ENOMEM);
}

CONFORMANCE_TEST(errors, destroying_what_is_used) {
  ibv_pd* pd = ibv_alloc_pd(side.context);
  CHECK(pd != nullptr);
  {
    Cq cq(side, true);
    Buffer buffer(side, 4096, kAllAccess, pd);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    buffer.deregister();
    QpOptions options;
    Srq srq(side, 4);
    options.srq = srq.srq;
    options.pd = pd;
    {
      Qp qp(side, cq, options);
      CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
      CHECK_EQ(ibv_destroy_cq(cq.cq), EBUSY);
      CHECK_EQ(ibv_destroy_srq(srq.srq), EBUSY);
    }
    CHECK_EQ(ibv_destroy_comp_channel(cq.channel), EBUSY);
  }
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = side.gid;
  attr.grh.sgid_index = side.gid_index;
  ibv_ah* ah = ibv_create_ah(pd, &attr);
  CHECK(ah != nullptr);
  CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
  CHECK_EQ(ibv_destroy_ah(ah), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

CONFORMANCE_TEST(errors, illegal_registrations) {
  Buffer buffer(side, 4096);
  for (const int access : {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC}) {
    errno = 0;
    CHECK(ibv_reg_mr(side.pd, buffer.data, 4096, access) == nullptr);
    CHECK_EQ(errno, EINVAL);
  }
}

// SQD: posted requests wait; RTS: they are executed.
CONFORMANCE_TEST(errors, send_queue_drained) {
  Breakable pair(side);
  Qp& qp = pair.qp;
  for (int round = 0; round < 3; ++round) {
    if (side.is_a()) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_SQD;
      attr.en_sqd_async_notify = 1;
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
      CHECK(expect_async_event(side, IBV_EVENT_SQ_DRAINED) == qp.qp);
      fill(pair.buffer.data, 64, 4);
      qp.send(1, {pair.buffer.sge(0, 64)});
      pair.cq.expect_none(30);
      side.meet(1);
      attr.qp_state = IBV_QPS_RTS;
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, IBV_QP_STATE), 0);
      pair.cq.expect(1);
    } else {
      qp.receive(1, {pair.buffer.sge(0, 64)});
      pair.recv_cq.expect_none(20);
      side.meet(1);
      pair.recv_cq.expect(1);
      check_filled(pair.buffer.data, 64, 4);
    }
    side.meet(2);
  }
}

}  // namespace conformance
