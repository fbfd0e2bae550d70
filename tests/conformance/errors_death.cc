// The peer ends: by destroying its objects, by exit, by SIGKILL.
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/conformance/errors.h"

namespace conformance {

namespace {

constexpr uint64_t kReceives = 10;

QpOptions impatient() {
  QpOptions options;
  options.timeout = 10;  // 4 ms
  options.retry_cnt = 2;
  return options;
}

void post_receives(Qp& qp, const Buffer& buffer) {
  for (uint64_t id = 0; id < kReceives; ++id) qp.receive(id, {buffer.sge(0, 64)});
}

void one_message(const Side& side, Qp& qp, Cq& cq, const Buffer& buffer) {
  if (side.is_a()) {
    qp.receive(70, {buffer.sge(0, 64)});
    side.meet(1);
    cq.expect(70);
  } else {
    side.meet(1);
    qp.send(71, {buffer.sge(0, 64)});
    cq.expect(71);
  }
}

// After the peer has destroyed its objects: receives remain, sends time out.
void survive_in_order(Qp& qp, Cq& cq, Cq& recv_cq, const Buffer& buffer) {
  recv_cq.expect_none(300);
  CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(IBV_QPS_RTS));
  cq.arm();
  qp.send(80, {buffer.sge(0, 8)});
  cq.await_event();
  cq.expect(80, IBV_WC_RETRY_EXC_ERR);
  for (uint64_t id = 0; id < kReceives; ++id) recv_cq.expect(id, IBV_WC_WR_FLUSH_ERR);
  CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(IBV_QPS_ERR));
}

}  // namespace

CONFORMANCE_TEST(errors, peer_destroys_its_queue_pair) {
  Cq cq(side, true), recv_cq(side);
  Buffer buffer(side, 4096);
  if (side.is_a()) {
    Qp qp(side, cq, recv_cq, impatient());
    qp.connect();
    post_receives(qp, buffer);
    side.meet(2);
    side.meet(3);
    survive_in_order(qp, cq, recv_cq, buffer);
    qp.to(IBV_QPS_RESET);
    // The next peer finds it as good as new.
    qp.connect();
    one_message(side, qp, recv_cq, buffer);
  } else {
    {
      Qp qp(side, cq, recv_cq, impatient());
      qp.connect();
      side.meet(2);
    }
    side.meet(3);
    Qp qp(side, cq, recv_cq, impatient());
    qp.connect();
    one_message(side, qp, cq, buffer);
  }
  side.meet(4);
}

CONFORMANCE_TEST(errors, peer_closes_its_device) {
  if (side.is_a()) {
    Cq cq(side, true), recv_cq(side);
    Buffer buffer(side, 4096);
    Qp qp(side, cq, recv_cq, impatient());
    qp.connect();
    post_receives(qp, buffer);
    side.meet(2);
    side.await_end_of_peer();
    survive_in_order(qp, cq, recv_cq, buffer);
  } else {
    Cq cq(side);
    Buffer buffer(side, 4096);
    Qp qp(side, cq);
    qp.connect();
    side.meet(2);
  }
}

// exit(3) without a call of verbs: the kernel would have cleaned up a real device.
CONFORMANCE_TEST(errors, peer_exits) {
  Cq cq(side, true), recv_cq(side);
  Buffer buffer(side, 4096);
  Qp qp(side, cq, recv_cq, impatient());
  qp.connect();
  if (side.is_a()) {
    post_receives(qp, buffer);
    side.meet(2);
    side.await_end_of_peer();
    survive_in_order(qp, cq, recv_cq, buffer);
  } else {
    side.meet(2);
    std::exit(0);
  }
}

// After SIGKILL the survivor is notified, whether it polls or sleeps.
CONFORMANCE_TEST_WITH(errors, peer_killed_while_polling, kBKilled | kOneFabric) {
  Cq cq(side);
  Buffer buffer(side, 4096);
  Qp qp(side, cq);
  qp.connect();
  if (side.is_a()) {
    post_receives(qp, buffer);
    side.meet(2);
    for (uint64_t id = 0; id < kReceives; ++id) cq.expect(id, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(static_cast<int>(qp.state()), static_cast<int>(IBV_QPS_ERR));
    qp.send(1, {buffer.sge(0, 8)});
    cq.expect(1, IBV_WC_WR_FLUSH_ERR);
  } else {
    side.meet(2);
    ::raise(SIGKILL);
  }
}

CONFORMANCE_TEST_WITH(errors, peer_killed_while_sleeping, kBKilled | kOneFabric) {
  Cq cq(side, true);
  Buffer buffer(side, 4096);
  Qp qp(side, cq);
  qp.connect();
  if (side.is_a()) {
    post_receives(qp, buffer);
    cq.arm();
    side.meet(2);
    cq.await_event();
    for (uint64_t id = 0; id < kReceives; ++id) cq.expect(id, IBV_WC_WR_FLUSH_ERR);
  } else {
    side.meet(2);
    ::raise(SIGKILL);
  }
}

// With requests pending towards the killed peer.
CONFORMANCE_TEST_WITH(errors, peer_killed_with_work_waiting, kBKilled) {
  Cq cq(side, true), recv_cq(side, true);
  Buffer buffer(side, 4096);
  Qp qp(side, cq, recv_cq);
  qp.connect();
  if (side.is_a()) {
    post_receives(qp, buffer);
    for (uint64_t id = 0; id < 5; ++id) qp.send(id, {buffer.sge(0, 8)});
    cq.arm();
    recv_cq.arm();
    side.meet(2);
    cq.await_event();
    ibv_wc wc = cq.wait();
    CHECK_EQ(wc.wr_id, 0u);
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_RETRY_EXC_ERR);
    for (uint64_t id = 1; id < 5; ++id) cq.expect(id, IBV_WC_WR_FLUSH_ERR);
    recv_cq.await_event();
    for (uint64_t id = 0; id < kReceives; ++id) recv_cq.expect(id, IBV_WC_WR_FLUSH_ERR);
  } else {
    side.meet(2);
    ::raise(SIGKILL);
  }
}

// Messages that arrived before the death complete first.
CONFORMANCE_TEST_WITH(errors, peer_killed_after_sending, kBKilled | kOneFabric) {
  Cq cq(side);
  Buffer buffer(side, 4096);
  Qp qp(side, cq);
  qp.connect();
  if (side.is_a()) {
    for (uint64_t id = 0; id < kReceives; ++id) qp.receive(id, {buffer.sge(id * 64, 64)});
    side.meet(2);
    side.await_end_of_peer();
    for (uint64_t id = 0; id < kReceives; ++id) {
      cq.expect(id, id < 5 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
      if (id < 5) check_filled(buffer.data + id * 64, 64, id);
    }
  } else {
    side.meet(2);
    for (uint64_t id = 0; id < 5; ++id) {
      fill(buffer.data, 64, id);
      qp.send(id, {buffer.sge(0, 64)});
      cq.expect(id);
    }
    ::raise(SIGKILL);
  }
}

}  // namespace conformance
