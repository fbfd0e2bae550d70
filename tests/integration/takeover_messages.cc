// Ethernet frames of raw packet queue pairs, and management datagrams of queue pair 1.
//
// What is in flight when a daemon dies may be lost. The one side answers each message; the other
// side sends a message again until its answer comes.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/integration/takeover_kinds.h"

namespace vrdma::kinds {
namespace {

constexpr uint32_t kSlots = 16;
constexpr size_t kSlot = 512, kHeader = 40;
constexpr auto kPatience = std::chrono::milliseconds(50);

class Messages {
 public:
  Messages(const Options& options, ibv_qp_type type, size_t header)
      : context_(open_device(options.device)),
        pd_(made(ibv_alloc_pd(context_), "allocate a PD")),
        sent_(made(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "a CQ")),
        received_(made(ibv_create_cq(context_, 64, nullptr, nullptr, 0), "a CQ")),
        header_(header) {
    bytes_.resize((kSlots + 1) * kSlot);
    mr_ = made(ibv_reg_mr(pd_, bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE), "register");
    ibv_qp_init_attr attr{};
    attr.send_cq = sent_;
    attr.recv_cq = received_;
    attr.cap = {16, kSlots, 1, 1, 0};
    attr.qp_type = type;
    attr.sq_sig_all = 1;
    qp = made(ibv_create_qp(pd_, &attr), "create a QP");
  }
  void begin(ibv_qp_attr init, int mask) {
    init.qp_state = IBV_QPS_INIT;
    expect_0(ibv_modify_qp(qp, &init, mask | IBV_QP_STATE), "to INIT");
    for (uint32_t i = 0; i < kSlots; ++i) receive(i);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    expect_0(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    expect_0(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | (qp->qp_type == IBV_QPT_RAW_PACKET ? 0 : IBV_QP_SQ_PSN)),
             "to RTS");
    std::puts("ready");
  }
  void send(const std::vector<uint8_t>& message, ibv_ah* ah = nullptr) {
    std::memcpy(&bytes_[kSlots * kSlot], message.data(), message.size());
    ibv_send_wr wr{};
    ibv_sge sge{reinterpret_cast<uint64_t>(&bytes_[kSlots * kSlot]),
                static_cast<uint32_t>(message.size()), mr_->lkey};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    if (ah != nullptr) {
      wr.wr.ud.ah = ah;
      wr.wr.ud.remote_qpn = 1;
      wr.wr.ud.remote_qkey = 0x80010000;
    }
    post(qp, wr);
    success(sent_, "send a message");
  }
  // The next message that arrives, with its network header in `header`; empty: none came in time.
  std::vector<uint8_t> next(std::chrono::steady_clock::time_point until,
                            std::vector<uint8_t>* header = nullptr) {
    ibv_wc wc{};
    while (ibv_poll_cq(received_, 1, &wc) == 0)
      if (std::chrono::steady_clock::now() >= until) return {};
    if (wc.status != IBV_WC_SUCCESS)
      fail(std::string("receive a message: ") + ibv_wc_status_str(wc.status));
    const uint8_t* from = &bytes_[wc.wr_id * kSlot];
    if (header != nullptr) header->assign(from, from + header_);
    std::vector<uint8_t> message(from + header_, from + wc.byte_len);
    receive(wc.wr_id);
    return message;
  }
  ibv_ah* address(const ibv_gid& gid, uint8_t index) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid;
    attr.grh.sgid_index = index;
    attr.grh.hop_limit = 64;
    return made(ibv_create_ah(pd_, &attr), "an address handle");
  }
  ibv_qp* qp;

 private:
  void receive(uint64_t slot) {
    post_receive(qp, {reinterpret_cast<uint64_t>(&bytes_[slot * kSlot]), kSlot, mr_->lkey}, slot);
  }
  ibv_context* context_;
  ibv_pd* pd_;
  ibv_cq *sent_, *received_;
  ibv_mr* mr_;
  size_t header_;
  std::vector<uint8_t> bytes_;
};

// Sends what `message_of` makes of each round until `answers` accepts what comes back.
template <class Message, class Answers>
uint64_t ask(Messages& messages, ibv_ah* ah, Message message_of, Answers answers) {
  constexpr int kAttempts = 400;
  uint64_t round = 0;
  for (; g_over == 0; ++round) {
    const std::vector<uint8_t> message = message_of(round);
    int attempts = 0;
    for (bool answered = false; !answered;) {
      if (++attempts > kAttempts) fail("no answer comes");
      messages.send(message, ah);
      const auto until = std::chrono::steady_clock::now() + kPatience;
      while (!answered) {
        const std::vector<uint8_t> answer = messages.next(until);
        if (answer.empty()) break;
        answered = answers(round, answer);
      }
    }
  }
  return round;
}

using Mac = std::array<uint8_t, 6>;

Mac own_mac(ibv_context* context) {
  ibv_gid_entry entry{};
  expect_0(ibv_query_gid_ex(context, 1, 0, &entry, 0), "query the interface");
  ifreq request{};
  expect(::if_indextoname(entry.ndev_ifindex, request.ifr_name) != nullptr, "its interface");
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  expect_0(::ioctl(socket, SIOCGIFHWADDR, &request), "the address of its interface");
  ::close(socket);
  Mac mac{};
  std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
  return mac;
}

// Ethertypes for experiments (IEEE 802): questions have the first, answers the second.
constexpr uint8_t kQuestion = 0xb5, kAnswer = 0xb6;
constexpr size_t kFrame = 128, kEthernet = 14;

std::vector<uint8_t> frame_of(const Mac& to, const Mac& from, uint8_t kind, uint64_t round) {
  std::vector<uint8_t> frame(kFrame);
  std::memcpy(frame.data(), to.data(), to.size());
  std::memcpy(&frame[6], from.data(), from.size());
  frame[12] = 0x88;
  frame[13] = kind;
  std::memcpy(&frame[kEthernet], &round, sizeof round);
  fill(&frame[kEthernet + sizeof round], kFrame - kEthernet - sizeof round, round);
  return frame;
}
uint64_t round_in(const std::vector<uint8_t>& frame) {
  uint64_t round = 0;
  expect(frame.size() == kFrame, "a frame has another length");
  std::memcpy(&round, &frame[kEthernet], sizeof round);
  check(&frame[kEthernet + sizeof round], kFrame - kEthernet - sizeof round, round,
        "another frame arrives");
  return round;
}

}  // namespace

uint64_t use_frames(const Options& options) {
  Messages messages(options, IBV_QPT_RAW_PACKET, 0);
  const bool answers = options.peer == "answer";
  ibv_qp_attr init{};
  init.port_num = 1;
  struct {
    ibv_flow_attr attr{};
    ibv_flow_spec_eth spec{};
  } flow;
  flow.attr.type = IBV_FLOW_ATTR_NORMAL;
  flow.attr.size = sizeof flow;
  flow.attr.num_of_specs = 1;
  flow.attr.port = 1;
  flow.spec.type = IBV_FLOW_SPEC_ETH;
  flow.spec.size = sizeof flow.spec;
  flow.spec.val.ether_type = htons(0x8800 | (answers ? kQuestion : kAnswer));
  flow.spec.mask.ether_type = 0xffff;
  ibv_flow* wanted = made(ibv_create_flow(messages.qp, &flow.attr), "a flow");
  messages.begin(init, IBV_QP_PORT);
  const Mac own = own_mac(messages.qp->context);
  uint64_t rounds = 0;
  if (answers) {
    while (g_over == 0) {
      const auto frame = messages.next(std::chrono::steady_clock::now() + kPatience);
      if (frame.empty()) continue;
      Mac asker{};
      std::memcpy(asker.data(), &frame[6], asker.size());
      messages.send(frame_of(asker, own, kAnswer, round_in(frame)));
      ++rounds;
    }
  } else {
    Mac peer{};
    std::array<unsigned, 6> bytes{};
    expect(std::sscanf(options.peer.c_str(), "%x:%x:%x:%x:%x:%x", &bytes[0], &bytes[1], &bytes[2],
                       &bytes[3], &bytes[4], &bytes[5]) == 6,
           "a MAC");
    for (size_t i = 0; i < peer.size(); ++i) peer[i] = static_cast<uint8_t>(bytes[i]);
    rounds = ask(
        messages, nullptr, [&](uint64_t round) { return frame_of(peer, own, kQuestion, round); },
        [](uint64_t round, const std::vector<uint8_t>& frame) { return round_in(frame) == round; });
  }
  expect(ibv_destroy_qp(messages.qp) == EBUSY, "a QP with a flow is destroyed");
  expect_0(ibv_destroy_flow(wanted), "destroy the flow");
  expect_0(ibv_destroy_qp(messages.qp), "destroy the QP");
  return rounds;
}

namespace {

// A MAD of the performance class: header, then data.
constexpr size_t kMad = 256, kMadBody = 24;
constexpr uint8_t kGet = 1, kGetResponse = 0x81;

std::vector<uint8_t> mad_of(uint8_t method, uint64_t round) {
  std::vector<uint8_t> mad(kMad);
  mad[0] = 1;
  mad[1] = 4;
  mad[2] = 1;
  mad[3] = method;
  std::memcpy(&mad[8], &round, sizeof round);  // transaction
  mad[17] = 1;                                 // attribute
  fill(&mad[kMadBody], kMad - kMadBody, round);
  return mad;
}
uint64_t round_in_mad(const std::vector<uint8_t>& mad) {
  uint64_t round = 0;
  expect(mad.size() == kMad, "a MAD has another length");
  std::memcpy(&round, &mad[8], sizeof round);
  check(&mad[kMadBody], kMad - kMadBody, round, "another MAD arrives");
  return round;
}

}  // namespace

uint64_t use_mads(const Options& options) {
  Messages messages(options, static_cast<ibv_qp_type>(1), kHeader);  // IB_QPT_GSI of the kernel
  expect(messages.qp->qp_num == 1, "a queue pair 1 with another number");
  ibv_qp_attr init{};
  init.port_num = 1;
  init.qkey = 0x80010000;
  messages.begin(init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  uint64_t rounds = 0;
  if (options.peer == "answer") {
    std::vector<uint8_t> header;
    while (g_over == 0) {
      const auto mad = messages.next(std::chrono::steady_clock::now() + kPatience, &header);
      if (mad.empty()) continue;
      ibv_gid asker{};
      asker.raw[10] = asker.raw[11] = 0xff;
      std::memcpy(asker.raw + 12, &header[20 + 12], 4);  // the source in a header of IPv4
      ibv_ah* ah = messages.address(asker, options.gid_index);
      messages.send(mad_of(kGetResponse, round_in_mad(mad)), ah);
      expect_0(ibv_destroy_ah(ah), "destroy an address handle");
      ++rounds;
    }
  } else {
    ibv_gid peer{};
    expect(::inet_pton(AF_INET6, options.peer.c_str(), &peer) == 1, "a GID");
    ibv_ah* ah = messages.address(peer, options.gid_index);
    rounds = ask(
        messages, ah, [](uint64_t round) { return mad_of(kGet, round); },
        [](uint64_t round, const std::vector<uint8_t>& mad) { return round_in_mad(mad) == round; });
  }
  expect_0(ibv_destroy_qp(messages.qp), "destroy the QP");
  return rounds;
}

}  // namespace vrdma::kinds
