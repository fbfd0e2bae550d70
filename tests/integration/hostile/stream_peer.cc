// stream_peer client|server ADDRESS PORT SEED: a peer of a stream socket over RDMA that has no such
// socket, but says what it likes: wrong areas and credits in its private data, areas written at any
// moment, messages of any type and length. What it does follows from SEED.
//
// Ends with 0 when the connection is over or when it has said all, with 3 if it was refused.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "client/rsocket/protocol.h"

namespace {

using namespace vrdma::client;  // NOLINT(google-build-using-namespace): a test program

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "stream_peer: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

constexpr int kReceives = 64;
constexpr int kMessages = 200;
std::mt19937 any;
uint32_t one_of(std::initializer_list<uint32_t> all) { return all.begin()[any() % all.size()]; }

rdma_cm_event* next(rdma_event_channel* channel) {
  pollfd ready{channel->fd, POLLIN, 0};
  if (::poll(&ready, 1, 20'000) != 1) return nullptr;
  rdma_cm_event* event = nullptr;
  check(rdma_get_cm_event(channel, &event) == 0, "an event");
  return event;
}

struct Peer {
  alignas(64) std::array<char, 1 << 20> memory{};
  ibv_mr* mr = nullptr;
  rdma_cm_id* id = nullptr;
  RsHello theirs;

  void make_queue_pair() {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {256, kReceives, 1, 1, 64};
    attr.sq_sig_all = 1;
    check(rdma_create_qp(id, nullptr, &attr) == 0, "a queue pair");
    mr = ibv_reg_mr(id->pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    check(mr != nullptr, "memory");
    for (int i = 0; i < kReceives; ++i) receive();
  }

  void receive() const {
    ibv_recv_wr wr{}, *bad = nullptr;
    (void)ibv_post_recv(id->qp, &wr, &bad);
  }

  RsArea area() {
    RsArea it{reinterpret_cast<uint64_t>(memory.data()), mr->rkey, 4096};
    switch (any() % 6) {
      case 0:
        it.length = one_of({0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff});
        break;
      case 1:
        it.address = one_of({0, 1}) == 0 ? 0 : ~uint64_t{0} - any() % 4096;
        break;
      case 2:
        it.key = static_cast<uint32_t>(any());
        break;
      default:
        break;
    }
    return it;
  }

  std::array<uint8_t, RsHello::kSize> hello() {
    RsHello mine;
    mine.credits = static_cast<uint16_t>(one_of({1, 2, 16, 0xffff}));
    mine.iomaps = static_cast<uint8_t>(any());
    mine.list = area();
    mine.list.length = one_of({1, 2, 3, 0xffffffff});
    mine.buffer = area();
    auto bytes = mine.encode();
    if (any() % 8 == 0) bytes[any() % bytes.size()] = static_cast<uint8_t>(any());
    return bytes;
  }

  // False: the queue pair is in ERR.
  bool post(ibv_send_wr& wr, uint32_t length) const {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()) + 65536, length, mr->lkey};
    wr.sg_list = &sge;
    wr.num_sge = length == 0 ? 0 : 1;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(id->qp, &wr, &bad) != 0) return false;
    ibv_wc wc{};
    for (int tries = 0; tries < 500; ++tries) {
      const int count = ibv_poll_cq(id->send_cq, 1, &wc);
      if (count < 0 || (count == 1 && wc.status != IBV_WC_SUCCESS)) return false;
      while (ibv_poll_cq(id->recv_cq, 1, &wc) == 1) {
        if (wc.status != IBV_WC_SUCCESS) return false;
        receive();
      }
      if (count == 1) return true;
      ::usleep(1000);
    }
    return false;
  }

  // Says something. False: it is over.
  bool say() {
    for (auto& byte : memory)
      if (any() % 4096 == 0) byte = static_cast<char>(any());
    ibv_send_wr wr{};
    wr.wr.rdma.remote_addr = theirs.buffer.address;
    wr.wr.rdma.rkey = theirs.buffer.key;
    switch (any() % 5) {
      case 0: {  // an area in its list
        const RsArea given = area();
        std::memcpy(memory.data() + 65536, &given, sizeof given);
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.wr.rdma.remote_addr = theirs.list.address + any() % 2 * sizeof given;
        wr.wr.rdma.rkey = theirs.list.key;
        return post(wr, sizeof given);
      }
      case 1:  // data that may be longer than what was published
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htonl(rs_message(RsMessage::kData, one_of({0, 1, 100, 4096, 0x1fffffff})));
        return post(wr, 100);
      case 2:
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htonl(rs_message(RsMessage::kCredit, static_cast<uint32_t>(any())));
        return post(wr, 0);
      case 3:
        wr.opcode = one_of({0, 1}) == 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = static_cast<uint32_t>(any());
        return post(wr, 0);
      default:
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.imm_data = htonl(rs_message(static_cast<RsMessage>(any() % 8), any() % 8));
        return post(wr, 0);
    }
  }

  void remember(const rdma_cm_event& event) {
    const auto& conn = event.param.conn;
    const auto hello =
        RsHello::decode({static_cast<const uint8_t*>(conn.private_data), conn.private_data_len});
    if (hello) theirs = *hello;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  any.seed(static_cast<uint32_t>(std::atoi(argv[4])));
  static Peer peer;
  rdma_event_channel* const channel = rdma_create_event_channel();
  check(channel != nullptr, "a channel");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[3])));
  check(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1, "an address");
  auto* const to = reinterpret_cast<sockaddr*>(&address);
  rdma_conn_param param{};
  param.responder_resources = param.initiator_depth = 1;
  param.retry_count = 2;
  param.rnr_retry_count = 2;
  std::array<uint8_t, RsHello::kSize> hello{};
  const bool client = std::strcmp(argv[1], "client") == 0;
  check(rdma_create_id(channel, &peer.id, nullptr, RDMA_PS_TCP) == 0, "an id");
  if (client) {
    check(rdma_resolve_addr(peer.id, nullptr, to, 2000) == 0, "resolve the address");
  } else {
    check(rdma_bind_addr(peer.id, to) == 0 && rdma_listen(peer.id, 1) == 0, "listen");
    std::puts("listens");
    std::fflush(stdout);
  }
  for (;;) {
    rdma_cm_event* const event = next(channel);
    if (event == nullptr) check(false, "no event comes");
    switch (event->event) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        check(rdma_resolve_route(peer.id, 2000) == 0, "resolve the route");
        break;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        if (!client) {
          peer.id = event->id;
          peer.remember(*event);
        }
        peer.make_queue_pair();
        hello = peer.hello();
        param.private_data = hello.data();
        param.private_data_len = hello.size();
        check((client ? rdma_connect(peer.id, &param) : rdma_accept(peer.id, &param)) == 0,
              "connect");
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        if (client) peer.remember(*event);
        for (int i = 0; i < kMessages && peer.say(); ++i) {
        }
        if (any() % 2 == 0) rdma_disconnect(peer.id);
        return 0;
      case RDMA_CM_EVENT_REJECTED:
        std::puts("REJECTED");
        return 3;
      default:
        std::fprintf(stderr, "stream_peer: %s\n", rdma_event_str(event->event));
        return 1;
    }
    rdma_ack_cm_event(event);
  }
}
