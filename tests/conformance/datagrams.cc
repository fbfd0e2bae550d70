// Unreliable datagrams: groups, replies to a sender, dropped datagrams.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

constexpr size_t kGrh = 40;

QpOptions datagrams() {
  QpOptions options;
  options.type = IBV_QPT_UD;
  return options;
}

struct Mailbox {
  explicit Mailbox(const Side& given)
      : side(given),
        cq(given),
        recv_cq(given),
        qp(given, cq, recv_cq, datagrams()),
        buffer(given, 65536) {
    qp.connect();
  }
  void receive(uint64_t wr_id) { qp.receive(wr_id, {buffer.sge(wr_id * 4096, 4096)}); }
  void send(uint64_t wr_id, ibv_ah* ah, uint32_t qpn, size_t length, uint32_t qkey = 0x11111111) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    CHECK_EQ(qp.try_send(wr, {buffer.sge(0, length)}), 0);
  }
  const Side& side;
  Cq cq, recv_cq;
  Qp qp;
  Buffer buffer;
};

ibv_ah* address(const Side& side, const ibv_gid& to) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = to;
  attr.grh.sgid_index = side.gid_index;
  attr.grh.hop_limit = 64;
  ibv_ah* ah = ibv_create_ah(side.pd, &attr);
  CHECK(ah != nullptr);
  return ah;
}

}  // namespace

CONFORMANCE_TEST_WITH(datagrams, group, kOneFabric) {
  Mailbox box(side);
  ibv_gid group{};
  CHECK_EQ(::inet_pton(AF_INET6, "ff0e::4711", group.raw), 1);
  ibv_ah* ah = address(side, group);
  for (int round = 0; round < 2; ++round) {
    CHECK_EQ(ibv_attach_mcast(box.qp.qp, &group, 0), 0);
    for (uint64_t id = 1; id <= 2; ++id) box.receive(id);
    side.meet(1);
    if (side.is_a()) {
      fill(box.buffer.data, 500, 1);
      box.send(9, ah, 0xffffff, 500);
      box.cq.expect(9);
      side.meet(2);
      box.recv_cq.expect_none(20);  // a sender does not receive its own datagrams
      CHECK_EQ(ibv_destroy_qp(box.qp.qp), EBUSY);
    } else {
      const ibv_wc wc = box.recv_cq.expect(1);
      CHECK_EQ(wc.byte_len, 500u + kGrh);
      CHECK((wc.wc_flags & IBV_WC_GRH) != 0);
      check_filled(box.buffer.data + 4096 + kGrh, 500, 1);
      side.meet(2);
    }
    CHECK_EQ(ibv_detach_mcast(box.qp.qp, &group, 0), 0);
    CHECK_EQ(ibv_detach_mcast(box.qp.qp, &group, 0), EINVAL);
    side.meet(3);
    if (side.is_a()) {
      box.send(9, ah, 0xffffff, 500);
      box.cq.expect(9);
    }
    side.meet(4);
    box.recv_cq.expect_none(20);
    box.qp.reconnect();
  }
  CHECK_EQ(ibv_destroy_ah(ah), 0);
  // Only UD queue pairs join groups, and only group addresses are valid.
  CHECK_EQ(ibv_attach_mcast(box.qp.qp, &side.gid, 0), EINVAL);
  Qp connected(side, box.cq);
  CHECK_EQ(ibv_attach_mcast(connected.qp, &group, 0), EINVAL);
}

// b replies to the sender of the datagram, known only from its completion and header.
CONFORMANCE_TEST(datagrams, answer) {
  Mailbox box(side);
  const Endpoint peer = side.exchange(box.qp.endpoint());
  box.receive(1);
  side.meet(1);
  if (side.is_a()) {
    ibv_ah* ah = address(side, peer.gid);
    fill(box.buffer.data, 100, 2);
    box.send(2, ah, peer.qpn, 100);
    box.cq.expect(2);
    const ibv_wc wc = box.recv_cq.expect(1);
    CHECK_EQ(wc.src_qp, peer.qpn);
    check_filled(box.buffer.data + 4096 + kGrh, 100, 3);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
  } else {
    ibv_wc wc = box.recv_cq.expect(1);
    CHECK_EQ(wc.src_qp, peer.qpn);
    auto* grh = reinterpret_cast<ibv_grh*>(box.buffer.data + 4096);
    ibv_ah_attr attr{};
    CHECK_EQ(ibv_init_ah_from_wc(side.context, 1, &wc, grh, &attr), 0);
    CHECK_EQ(std::memcmp(attr.grh.dgid.raw, peer.gid.raw, 16), 0);
    CHECK_EQ(attr.grh.sgid_index, side.gid_index);
    ibv_ah* ah = ibv_create_ah_from_wc(side.pd, &wc, grh, 1);
    CHECK(ah != nullptr);
    fill(box.buffer.data, 100, 3);
    box.send(2, ah, wc.src_qp, 100);
    box.cq.expect(2);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
  }
  side.meet(2);
}

// A wrong Q_Key or a receive that is too short drops the datagram without further effect.
CONFORMANCE_TEST(datagrams, dropped) {
  Mailbox box(side);
  const Endpoint peer = side.exchange(box.qp.endpoint());
  if (!side.is_a()) box.receive(1);
  side.meet(1);
  ibv_ah* ah = address(side, peer.gid);
  if (side.is_a()) {
    box.send(1, ah, peer.qpn, 100, 0x222);
    box.send(2, ah, peer.qpn ^ 0x400, 100);
    for (uint64_t id = 1; id <= 2; ++id) box.cq.expect(id);
  }
  side.meet(2);
  if (!side.is_a()) box.recv_cq.expect_none(20);
  side.meet(3);
  if (side.is_a()) {
    box.send(3, ah, peer.qpn, 100);
    box.cq.expect(3);
    // Longer than the path MTU: the sender's own error, from which it recovers via SQE.
    box.send(4, ah, peer.qpn, 4096 + 4);
    box.cq.expect(4, IBV_WC_LOC_LEN_ERR);
    box.qp.await_state(IBV_QPS_SQE);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.cur_qp_state = IBV_QPS_SQE;
    CHECK_EQ(ibv_modify_qp(box.qp.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    box.send(5, ah, peer.qpn, 0);
    box.cq.expect(5);
  } else {
    box.recv_cq.expect(1);
  }
  side.meet(4);
  CHECK_EQ(ibv_destroy_ah(ah), 0);
}

}  // namespace conformance
