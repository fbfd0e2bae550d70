// Raw packet queue pairs: whole Ethernet frames, for users whom the kernel permits them.
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/conformance/queue.h"

namespace conformance {

namespace {

constexpr size_t kFrame = 200;
constexpr size_t kMac = 6;

using Mac = std::array<uint8_t, kMac>;

Mac own_mac(ibv_context* context) {
  ibv_gid_entry entry{};
  CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
  ifreq request{};
  CHECK(::if_indextoname(entry.ndev_ifindex, request.ifr_name) != nullptr);
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  CHECK_EQ(::ioctl(socket, SIOCGIFHWADDR, &request), 0);
  ::close(socket);
  Mac mac{};
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

// Unused group addresses, and an ethertype for experiments (IEEE 802).
std::vector<uint8_t> frame_of(uint8_t group, const Mac& source, bool tagged) {
  std::vector<uint8_t> frame{0x03, 0, 0, 0, 0, group};
  frame.insert(frame.end(), source.begin(), source.end());
  if (tagged) frame.insert(frame.end(), {0x81, 0x00, 0x60, 0x05});  // priority 3, VLAN 5
  frame.insert(frame.end(), {0x88, 0xb5});
  while (frame.size() < kFrame) frame.push_back(static_cast<uint8_t>(group + frame.size()));
  return frame;
}

struct EthFlow {
  ibv_flow_attr attr{};
  ibv_flow_spec_eth spec{};
};

EthFlow flow_of(uint8_t group) {
  EthFlow flow;
  flow.attr.type = IBV_FLOW_ATTR_NORMAL;
  flow.attr.size = sizeof flow;
  flow.attr.num_of_specs = 1;
  flow.attr.port = 1;
  flow.spec.type = IBV_FLOW_SPEC_ETH;
  flow.spec.size = sizeof flow.spec;
  std::memcpy(flow.spec.val.dst_mac, frame_of(group, {}, false).data(), kMac);
  std::memset(flow.spec.mask.dst_mac, 0xff, kMac);
  return flow;
}

struct Raw {
  Raw(const Side& side, const Cq& cq) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq.cq;
    init.cap = {8, 8, 1, 1, 0};
    init.qp_type = IBV_QPT_RAW_PACKET;
    errno = 0;
    qp = ibv_create_qp(side.pd, &init);
  }
  void to(ibv_qp_state state, int mask = IBV_QP_STATE) const {
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qp_state = state;
    CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
  }
  void to_rts() const {
    to(IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT);
    to(IBV_QPS_RTR);
    to(IBV_QPS_RTS);
  }
  void receive(const Buffer& buffer, size_t at, uint64_t id) const {
    ibv_sge sge = buffer.sge(at, 512);
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  }
  void send(const Buffer& buffer, size_t at, const std::vector<uint8_t>& frame) const {
    std::memcpy(buffer.data + at, frame.data(), frame.size());
    ibv_sge sge = buffer.sge(at, static_cast<uint32_t>(frame.size()));
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }

  ibv_qp* qp = nullptr;
};

}  // namespace

CONFORMANCE_TEST(datagrams, raw_packets) {
  Cq cq(side);
  const Raw raw(side, cq);
  if (::geteuid() != 0) {  // without CAP_NET_RAW
    CHECK(raw.qp == nullptr);
    CHECK_EQ(errno, EPERM);
    return;
  }
  CHECK(raw.qp != nullptr);
  raw.to_rts();
  const Mac mac = own_mac(side.context);
  Buffer buffer(side, 4096);
  for (uint64_t i = 0; i < 4; ++i) raw.receive(buffer, i * 512, 10 + i);
  // A flow for the other side's frames; a frame without a flow is not delivered.
  const uint8_t mine = side.is_a() ? 1 : 2, others = side.is_a() ? 2 : 1;
  EthFlow wanted = flow_of(others);
  ibv_flow* flow = ibv_create_flow(raw.qp, &wanted.attr);
  CHECK(flow != nullptr);
  CHECK_EQ(ibv_destroy_qp(raw.qp), EBUSY);
  const Mac theirs = side.exchange(mac);
  raw.send(buffer, 2048, frame_of(77, mac, false));
  raw.send(buffer, 2560, frame_of(mine, mac, false));
  raw.send(buffer, 3072, frame_of(mine, mac, true));
  int sent = 0, received = 0;
  while (sent < 3 || received < 2) {
    ibv_wc wc = cq.wait();
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_SEND) {
      ++sent;
      continue;
    }
    CHECK_EQ(wc.opcode, IBV_WC_RECV);
    CHECK_EQ(wc.wr_id, 10u + static_cast<unsigned>(received));
    CHECK_EQ(wc.byte_len, kFrame);
    CHECK_EQ(wc.wc_flags & IBV_WC_GRH, 0u);
    const uint8_t* data = buffer.data + 512 * received;
    const auto expected = frame_of(others, theirs, received == 1);
    CHECK(std::memcmp(data, expected.data(), expected.size()) == 0);
    ++received;
  }
  side.meet(1);

  // A frame with another source address, or no valid frame, is refused.
  Mac forged = mac;
  forged[5] ^= 1;
  raw.send(buffer, 2560, frame_of(mine, forged, false));
  CHECK_EQ(cq.wait().status, IBV_WC_LOC_QP_OP_ERR);
  raw.to(IBV_QPS_RTS);  // from SQE
  raw.send(buffer, 2560, {1, 2, 3});
  CHECK_EQ(cq.wait().status, IBV_WC_LOC_LEN_ERR);
  side.meet(2);
  cq.expect_none(100);

  // Without its flow it receives nothing, not even from the vdevice itself.
  CHECK_EQ(ibv_destroy_flow(flow), 0);
  const Raw other(side, cq);
  CHECK(other.qp != nullptr);
  other.to_rts();
  other.send(buffer, 2560, frame_of(others, mac, false));
  CHECK_EQ(cq.wait().opcode, IBV_WC_SEND);
  cq.expect_none(100);
  flow = ibv_create_flow(raw.qp, &wanted.attr);
  CHECK(flow != nullptr);
  other.send(buffer, 2560, frame_of(others, mac, false));
  for (int i = 0; i < 2; ++i) CHECK_EQ(cq.wait().status, IBV_WC_SUCCESS);
  CHECK_EQ(ibv_destroy_flow(flow), 0);
  CHECK_EQ(ibv_destroy_qp(other.qp), 0);
  CHECK_EQ(ibv_destroy_qp(raw.qp), 0);
  side.meet(3);
}

}  // namespace conformance
