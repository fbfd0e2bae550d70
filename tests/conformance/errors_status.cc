// The completion statuses of errors, their effect on both queue pairs, and the recovery.
#include <algorithm>
#include <cstring>

#include "tests/conformance/errors.h"

namespace conformance {

Breakable::Breakable(const Side& given, const QpOptions& options)
    : side(given),
      cq(given),
      recv_cq(given),
      qp(given, cq, recv_cq, options),
      buffer(given, kBufferSize) {
  qp.connect();
}

void Breakable::mend() {
  qp.reconnect();
  qp.receive(901, {buffer.sge(0, 64)});
  side.meet(10);
  fill(buffer.data + 4096, 64, side.is_a() ? 1 : 2);
  qp.send(902, {buffer.sge(4096, 64)});
  cq.expect(902);
  CHECK_EQ(recv_cq.expect(901).byte_len, 64u);
  check_filled(buffer.data, 64, side.is_a() ? 2 : 1);
  side.meet(11);
}

void Breakable::provoke(const std::function<void()>& act,
                        std::initializer_list<ibv_wc_status> statuses, int event, int other_event) {
  if (side.is_a()) {
    qp.receive(801, {buffer.sge(0, 64)});
    qp.receive(802, {buffer.sge(0, 64)});
    act();
    const ibv_wc wc = cq.wait();
    CHECK_EQ(wc.wr_id, 1u);
    if (std::find(statuses.begin(), statuses.end(), wc.status) == statuses.end())
      fail(__FILE__, __LINE__,
           std::string("the status is '") + ibv_wc_status_str(wc.status) + "', not '" +
               ibv_wc_status_str(*statuses.begin()) + "'");
    CHECK_EQ(wc.qp_num, qp.qp->qp_num);
    qp.await_state(IBV_QPS_ERR);
    // Later requests are flushed too.
    qp.send(2, {buffer.sge(0, 8)});
    cq.expect(2, IBV_WC_WR_FLUSH_ERR);
    qp.receive(803, {});
    for (const uint64_t id : {801, 802, 803}) recv_cq.expect(id, IBV_WC_WR_FLUSH_ERR);
    cq.expect_none(5);
    side.meet(20);
  } else {
    qp.receive(811, {buffer.sge(0, 64)});
    side.meet(20);
    if (event >= 0) {
      void* about = expect_async_event(side, static_cast<ibv_event_type>(event), other_event);
      CHECK(about == qp.qp);
      qp.await_state(IBV_QPS_ERR);
      recv_cq.expect(811, IBV_WC_WR_FLUSH_ERR);
      qp.send(812, {buffer.sge(0, 8)});
      cq.expect(812, IBV_WC_WR_FLUSH_ERR);
    }
  }
  mend();
}

void Breakable::provoke_receive(const std::function<void()>& receive, ibv_wc_status at_b,
                                ibv_wc_status at_a) {
  if (side.is_a()) {
    side.meet(21);
    qp.send(1, {buffer.sge(0, 1000)});
    qp.send(2, {buffer.sge(0, 8)});
    cq.expect(1, at_a);
    cq.expect(2, IBV_WC_WR_FLUSH_ERR);
    qp.await_state(IBV_QPS_ERR);
  } else {
    receive();
    qp.receive(2, {buffer.sge(0, 8)});
    side.meet(21);
    recv_cq.expect(1, at_b);
    recv_cq.expect(2, IBV_WC_WR_FLUSH_ERR);
    qp.await_state(IBV_QPS_ERR);
  }
  mend();
}

CONFORMANCE_TEST(errors, local_protection) {
  Breakable pair(side);
  Qp& qp = pair.qp;
  const Remote remote = side.exchange(remote_of(pair.buffer));
  ibv_pd* foreign = ibv_alloc_pd(side.context);
  CHECK(foreign != nullptr);
  {
    Buffer read_only(side, 4096, 0), of_foreign(side, 4096, kAllAccess, foreign);
    const auto provoke = [&](const std::function<void()>& act) {
      pair.provoke(act, {IBV_WC_LOC_PROT_ERR});
    };
    ibv_sge wrong = pair.buffer.sge(0, 8);
    wrong.lkey ^= 0x5a00;
    provoke([&] { qp.send(1, {wrong}); });
    provoke([&] { qp.send(1, {of_foreign.sge(0, 8)}); });
    provoke([&] { qp.send(1, {pair.buffer.sge(0, 8), pair.buffer.sge(kBufferSize - 7, 8)}); });
    ibv_sge before = pair.buffer.sge(0, 8);
    before.addr -= 1;
    provoke([&] { qp.write(1, {before}, remote); });
    provoke([&] { qp.read(1, {read_only.sge(0, 8)}, remote); });
    provoke([&] { qp.fetch_add(1, read_only.sge(0, 8), remote, 0, 1); });
    Buffer gone(side, 4096);
    const ibv_sge stale = gone.sge(0, 8);
    gone.deregister();
    provoke([&] { qp.send(1, {stale}); });
  }
  CHECK_EQ(ibv_dealloc_pd(foreign), 0);
}

CONFORMANCE_TEST(errors, local_length) {
  Breakable pair(side);
  const Remote remote = side.exchange(remote_of(pair.buffer));
  for (const size_t length : {4, 16})
    pair.provoke([&] { pair.qp.fetch_add(1, pair.buffer.sge(0, length), remote, 0, 1); },
                 {IBV_WC_LOC_LEN_ERR});
}

CONFORMANCE_TEST(errors, receive_too_short) {
  Breakable pair(side);
  const auto& buffer = pair.buffer;
  pair.provoke_receive([&] { pair.qp.receive(1, {buffer.sge(0, 999)}); }, IBV_WC_LOC_LEN_ERR,
                       IBV_WC_REM_INV_REQ_ERR);
  pair.provoke_receive([&] { pair.qp.receive(1, {}); }, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
}

CONFORMANCE_TEST(errors, receive_protection) {
  Breakable pair(side);
  {
    Buffer read_only(side, 4096, IBV_ACCESS_REMOTE_READ);
    const auto provoke = [&](const ibv_sge& sge) {
      pair.provoke_receive([&] { pair.qp.receive(1, {sge}); }, IBV_WC_LOC_PROT_ERR,
                           IBV_WC_REM_OP_ERR);
    };
    ibv_sge sge = pair.buffer.sge(0, 4096);
    sge.lkey ^= 0xa500;
    provoke(sge);
    provoke(read_only.sge(0, 4096));
    sge = pair.buffer.sge(kBufferSize - 999, 1000);
    provoke(sge);
  }
}

// All requests in the queues are flushed in order, and an armed channel has an event.
CONFORMANCE_TEST(errors, flush) {
  Cq send_cq(side, true), recv_cq(side, true);
  Qp qp(side, send_cq, recv_cq);
  Buffer buffer(side, 4096);
  qp.connect();
  for (int round = 0; round < 2; ++round) {
    send_cq.arm();
    recv_cq.arm(true);
    if (side.is_a()) {
      for (uint64_t id = 0; id < 20; ++id) qp.send(id, {buffer.sge(0, 8)});
      for (uint64_t id = 0; id < 30; ++id) qp.receive(id, {buffer.sge(0, 8)});
      qp.to(IBV_QPS_ERR);
      send_cq.await_event();
      recv_cq.await_event();
      for (uint64_t id = 0; id < 20; ++id) send_cq.expect(id, IBV_WC_WR_FLUSH_ERR);
      for (uint64_t id = 0; id < 30; ++id) recv_cq.expect(id, IBV_WC_WR_FLUSH_ERR);
      // Posted in the error state: the channel has an event for these too.
      send_cq.arm();
      recv_cq.arm();
      qp.send(20, {buffer.sge(0, 8)});
      qp.receive(30, {buffer.sge(0, 8)});
      send_cq.await_event();
      recv_cq.await_event();
      send_cq.expect(20, IBV_WC_WR_FLUSH_ERR);
      recv_cq.expect(30, IBV_WC_WR_FLUSH_ERR);
    }
    side.meet(30);
    qp.reconnect();
    qp.receive(100, {buffer.sge(0, 8)});
    side.meet(31);
    qp.send(101, {buffer.sge(8, 8)});
    send_cq.expect(101);
    recv_cq.expect(100);
    side.meet(32);
  }
}

// RESET drops all requests: they never complete, not even later.
CONFORMANCE_TEST(errors, reset_forgets) {
  Breakable pair(side);
  if (side.is_a()) {
    for (uint64_t id = 0; id < 20; ++id) pair.qp.send(id, {pair.buffer.sge(0, 8)});
    for (uint64_t id = 0; id < 20; ++id) pair.qp.receive(id, {pair.buffer.sge(0, 8)});
    pair.qp.to(IBV_QPS_RESET);
    pair.cq.expect_none(20);
    pair.recv_cq.expect_none(20);
  }
  side.meet(40);
  pair.mend();
}

// A queue pair whose peer does not answer.
CONFORMANCE_TEST(errors, retry_exceeded) {
  QpOptions options;
  options.timeout = 8;  // 1 ms
  options.retry_cnt = 3;
  Cq cq(side, true);
  Qp qp(side, cq, options);
  Buffer buffer(side, 4096);
  for (int round = 0; round < 2; ++round) {
    qp.to_init();
    Endpoint peer = side.exchange(qp.endpoint());
    if (round == 0) peer.qpn ^= 0x123;
    if (round == 1) peer.gid.raw[15] ^= 0x55;
    qp.to_rtr(peer);
    qp.to_rts();
    cq.arm();
    qp.send(1, {buffer.sge(0, 8)});
    qp.send(2, {buffer.sge(0, 8)});
    cq.await_event();
    cq.expect(1, IBV_WC_RETRY_EXC_ERR);
    cq.expect(2, IBV_WC_WR_FLUSH_ERR);
    qp.await_state(IBV_QPS_ERR);
    qp.to(IBV_QPS_RESET);
    side.meet(41);
  }
}

// Unreliable queue pairs go to SQE after a local error, still receive, and return to RTS.
CONFORMANCE_TEST(errors, send_queue_error) {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
    QpOptions options;
    options.type = type;
    Cq cq(side), recv_cq(side);
    Qp qp(side, cq, recv_cq, options);
    Buffer buffer(side, 8192);
    qp.connect();
    const Endpoint peer = side.exchange(qp.endpoint());
    ibv_ah_attr ah_attr{};
    ah_attr.is_global = 1;
    ah_attr.port_num = 1;
    ah_attr.grh.dgid = peer.gid;
    ah_attr.grh.sgid_index = side.gid_index;
    ah_attr.grh.hop_limit = 64;
    ibv_ah* ah = ibv_create_ah(side.pd, &ah_attr);
    CHECK(ah != nullptr);
    const auto send = [&](uint64_t id, const ibv_sge& sge) {
      ibv_send_wr wr{};
      wr.wr_id = id;
      wr.opcode = IBV_WR_SEND;
      if (type == IBV_QPT_UD) {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = peer.qpn;
        wr.wr.ud.remote_qkey = options.qkey;
      }
      CHECK_EQ(qp.try_send(wr, {sge}), 0);
    };
    qp.receive(50, {buffer.sge(0, 4096)});
    side.meet(50);
    if (side.is_a()) {
      ibv_sge wrong = buffer.sge(0, 8);
      wrong.lkey ^= 0x5a00;
      send(1, wrong);
      cq.expect(1, IBV_WC_LOC_PROT_ERR);
      qp.await_state(IBV_QPS_SQE);
      send(2, buffer.sge(0, 8));
      cq.expect(2, IBV_WC_WR_FLUSH_ERR);
      side.meet(51);
      recv_cq.expect(50);  // b's message, in SQE
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_RTS;
      attr.cur_qp_state = IBV_QPS_SQE;
      CHECK_EQ(ibv_modify_qp(qp.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
      send(3, buffer.sge(4096, 8));
      cq.expect(3);
    } else {
      side.meet(51);
      send(1, buffer.sge(4096, 8));
      cq.expect(1);
      recv_cq.expect(50);
    }
    side.meet(52);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
  }
}

}  // namespace conformance
