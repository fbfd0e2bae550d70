// raw_qp1 refused DEVICE | serve DEVICE MADS | ask DEVICE GID...
//
// Uses queue pair 1 directly, as a subnet manager's programs do. `refused` must not get one.
// `serve` answers each MAD with the same body, and a REQ of rdma_cm with a REJ; it ends after MADS
// of them. `ask` tries invalid requests, then sends to each GID and waits for the reply, and
// finally sends as fast as it can without waiting.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/cm.h"
#include "core/wire/mad.h"

namespace {

using namespace vrdma::wire;  // for most names below

constexpr auto kGsi = static_cast<ibv_qp_type>(1);  // IB_QPT_GSI of the kernel
constexpr uint8_t kPerformance = 4, kGet = 1, kGetResponse = 0x81;
constexpr int kReceives = 64, kRoom = 40 + sizeof(Mad);

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}
void must(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

struct Port {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq *sent = nullptr, *received = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  uint64_t guid = 0;
  std::array<std::array<uint8_t, kRoom>, kReceives + 1> rooms{};  // the last one is for sending

  explicit Port(const std::string& name) {
    ibv_device** list = ibv_get_device_list(nullptr);
    for (int i = 0; list != nullptr && list[i] != nullptr; ++i)
      if (ibv_get_device_name(list[i]) == name) context = ibv_open_device(list[i]);
    must(context != nullptr, "ibv_open_device");
    guid = ibv_get_device_guid(context->device);
    pd = ibv_alloc_pd(context);
    sent = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    received = ibv_create_cq(context, kReceives, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, rooms.data(), sizeof rooms, IBV_ACCESS_LOCAL_WRITE);
    must(sent != nullptr && received != nullptr && mr != nullptr, "a completion queue");
  }

  ibv_qp* try_open() {
    ibv_qp_init_attr attr{};
    attr.send_cq = sent;
    attr.recv_cq = received;
    attr.cap = {256, kReceives, 1, 1, sizeof(Mad)};
    attr.qp_type = kGsi;
    return ibv_create_qp(pd, &attr);
  }
  void open() {
    qp = try_open();
    must(qp != nullptr && qp->qp_num == kGsiQpn, "no queue pair 1");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kGsiQkey;
    must(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0,
        "to INIT");
    for (uint64_t i = 0; i < kReceives; ++i) post_receive(i);
    attr.qp_state = IBV_QPS_RTR;
    must(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    must(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0, "to RTS");
  }
  void close() { must(ibv_destroy_qp(std::exchange(qp, nullptr)) == 0, "ibv_destroy_qp"); }

  void post_receive(uint64_t room) {
    ibv_sge sge{reinterpret_cast<uint64_t>(rooms.at(room).data()), kRoom, mr->lkey};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = room;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    must(ibv_post_recv(qp, &wr, &bad) == 0, "ibv_post_recv");
  }
  ibv_wc next(ibv_cq* cq) {
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) ::usleep(100);
    return wc;
  }
  ibv_wc_status send(const Mad& mad, const ibv_gid& to, uint8_t index,
                     uint32_t length = sizeof(Mad), uint32_t qpn = kGsiQpn) {
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = 1;
    address.grh.dgid = to;
    address.grh.sgid_index = index;
    address.grh.hop_limit = 64;
    ibv_ah* ah = ibv_create_ah(pd, &address);
    must(ah != nullptr, "ibv_create_ah");
    std::memcpy(rooms.back().data(), &mad, sizeof mad);
    ibv_sge sge{reinterpret_cast<uint64_t>(rooms.back().data()), length, mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = kGsiQkey;
    must(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
    const ibv_wc wc = next(sent);
    ibv_destroy_ah(ah);
    return wc.status;
  }
  // An error ends the queue pair; the next test makes a new one.
  void send_badly(const Mad& mad, const ibv_gid& to, uint32_t length, uint32_t qpn,
                  ibv_wc_status expected) {
    const ibv_wc_status status = send(mad, to, 0, length, qpn);
    must(status == expected, std::string("a bad MAD is sent with ") + ibv_wc_status_str(status));
    close();
    ibv_wc wc{};
    while (ibv_poll_cq(received, 1, &wc) > 0) {
    }
    open();
  }
};

Mad get(uint64_t transaction) {
  Mad mad{};
  mad.header.base_version = kMadBaseVersion;
  mad.header.management_class = kPerformance;
  mad.header.class_version = 1;
  mad.header.method = kGet;
  mad.header.attribute_id = 1;
  mad.header.transaction_id = transaction;
  std::memset(mad.body, 0x5a, sizeof mad.body);
  return mad;
}

// The source and destination of a datagram, from its network header.
std::pair<ibv_gid, ibv_gid> ends_of(const uint8_t* grh) {
  ibv_gid from{}, to{};
  if (grh[0] >> 4 == 6) {
    std::memcpy(from.raw, grh + 8, 16);
    std::memcpy(to.raw, grh + 24, 16);
  } else {
    for (ibv_gid* gid : {&from, &to}) gid->raw[10] = gid->raw[11] = 0xff;
    std::memcpy(from.raw + 12, grh + 20 + 12, 4);
    std::memcpy(to.raw + 12, grh + 20 + 16, 4);
  }
  return {from, to};
}

uint8_t index_of(ibv_context* context, const ibv_gid& wanted) {
  ibv_gid gid{};
  for (int i = 0; ibv_query_gid(context, 1, i, &gid) == 0; ++i)
    if (std::memcmp(&gid, &wanted, sizeof gid) == 0) return static_cast<uint8_t>(i);
  fail("a MAD came to an address that is none of ours");
}

void serve(Port& port, unsigned count) {
  port.open();
  errno = 0;
  must(port.try_open() == nullptr && errno == EBUSY, "a second queue pair 1");
  std::puts("ready");
  for (unsigned i = 0; i < count; ++i) {
    const ibv_wc wc = port.next(port.received);
    must(wc.status == IBV_WC_SUCCESS && wc.byte_len == kRoom && wc.src_qp == kGsiQpn &&
             (wc.wc_flags & IBV_WC_GRH) != 0,
         "a MAD arrives otherwise than one does");
    const uint8_t* room = port.rooms.at(wc.wr_id).data();
    Mad mad;
    std::memcpy(&mad, room + 40, sizeof mad);
    const auto [from, to] = ends_of(room);
    port.post_receive(wc.wr_id);
    if (cm_attribute(mad.header) == CmAttribute::kReq) {
      std::puts("a REQ");
      const CmReq req = mad.as<CmReq>();
      CmRej& rej = begin<CmRej>(mad, mad.header.transaction_id);
      rej.remote_id = req.local_id;
      rej.reason = static_cast<uint16_t>(RejectReason::kConsumer);
    } else {
      std::printf("transaction %llu\n",
                  static_cast<unsigned long long>(uint64_t{mad.header.transaction_id}));
      mad.header.method = kGetResponse;
    }
    must(port.send(mad, from, index_of(port.context, to)) == IBV_WC_SUCCESS, "the answer");
  }
}

void ask(Port& port, const std::vector<ibv_gid>& peers) {
  port.open();
  const ibv_gid first = peers.front();
  port.send_badly(get(1), first, 100, kGsiQpn, IBV_WC_LOC_LEN_ERR);
  port.send_badly(get(2), first, sizeof(Mad), 2, IBV_WC_LOC_QP_OP_ERR);
  // In another's name: dropped and counted.
  Mad forged{};
  CmReq& req = begin<CmReq>(forged, 3);
  req.ca_guid = 0x1234;
  must(port.send(forged, first, 0) == IBV_WC_SUCCESS, "what is lost is sent");
  uint64_t transaction = 100;
  for (const ibv_gid& peer : peers) {
    // From an address of the same family.
    ibv_gid own{};
    uint8_t index = 0;
    const auto family = [](const ibv_gid& gid) { return gid.raw[0]; };
    while (ibv_query_gid(port.context, 1, index, &own) == 0 && family(own) != family(peer)) ++index;
    must(port.send(get(++transaction), peer, index) == IBV_WC_SUCCESS, "a question");
    const ibv_wc wc = port.next(port.received);
    const uint8_t* room = port.rooms.at(wc.wr_id).data();
    Mad answer;
    std::memcpy(&answer, room + 40, sizeof answer);
    const auto [from, to] = ends_of(room);
    must(answer.header.transaction_id == transaction && answer.header.method == kGetResponse &&
             answer.body[231] == 0x5a && std::memcmp(&from, &peer, sizeof from) == 0 &&
             std::memcmp(&to, &own, sizeof to) == 0,
         "another answer than the peer's");
    port.post_receive(wc.wr_id);
  }
  const ibv_gid nobody{{0xfd, 0xff}};
  for (uint64_t i = 0; i < 3'000; ++i)
    must(port.send(get(i), nobody, 0) == IBV_WC_SUCCESS, "one of many");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: raw_qp1 refused DEVICE | serve DEVICE MADS | ask DEVICE GID...\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argv[1];
  Port port(argv[2]);
  if (what == "refused") {
    must(port.try_open() == nullptr && errno == EOPNOTSUPP, "a queue pair 1 without permission");
    return 0;
  }
  if (what == "serve") {
    serve(port, static_cast<unsigned>(std::atoi(argv[3])));
    return 0;
  }
  std::vector<ibv_gid> peers;
  for (int i = 3; i < argc; ++i)
    must(::inet_pton(AF_INET6, argv[i], &peers.emplace_back()) == 1, "a GID");
  ask(port, peers);
  return 0;
}
