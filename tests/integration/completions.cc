// vrdma_completions DEVICE GID_INDEX ADDRESS ROUNDS GO [PEER]: what programs count on when they
// take completions. The one without a PEER listens at ADDRESS. After "sleeps" it goes on when the
// file GO exists.
//
//   order    the completion of a request comes before the receive of the peer's answer to it,
//   whether one thread posts
//            and polls or two do, over one queue pair or many, whether the peer learns of the
//            request by a receive or by looking at its memory
//   events   each completion event stands for a completion: when queue pairs are connected, fail,
//   or are taken over by
//            another daemon, none comes without one and none is missing
#include <infiniband/verbs.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/integration/rc.h"
#include "tests/integration/talk.h"

namespace {

const char* phase = "the order";

[[noreturn]] void fail(const char* what, const char* detail = "") {
  std::printf("FAILED: %s %s (%s)\n", what, detail, phase);
  std::fflush(stdout);
  std::exit(1);
}
void check(bool holds, const char* what, const char* detail = "") {
  if (!holds) fail(what, detail);
}

constexpr uint16_t kPort = 7471;
constexpr size_t kMost = 12;  // queue pairs

struct Addresses {
  uint32_t qpns[kMost];
  ibv_gid gid;
  uint64_t memory;
  uint32_t rkey;
};

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  int index = 0;
  alignas(64) uint64_t memory[16] = {};  // [0] sent, [1] received, [2] written by the peer

  Device(const char* name, int gid_index) : index(gid_index) {
    int count = 0;
    ibv_device** const all = ibv_get_device_list(&count);
    for (int i = 0; i < count; ++i)
      if (std::strcmp(ibv_get_device_name(all[i]), name) == 0) context = ibv_open_device(all[i]);
    check(context != nullptr, "there is no device", name);
    pd = ibv_alloc_pd(context);
    mr = ibv_reg_mr(pd, memory, sizeof memory, rc::kAccess);
    check(mr != nullptr, "ibv_reg_mr");
  }
  ibv_sge at(size_t place) {
    return {reinterpret_cast<uintptr_t>(&memory[place]), sizeof memory[place], mr->lkey};
  }
};

// Queue pairs of both programs, connected in turn.
struct Links {
  Device& device;
  std::vector<ibv_qp*> qps;
  Addresses peer{};

  Links(Device& of, const Talk& talk, size_t count, ibv_cq* sends, ibv_cq* receives) : device(of) {
    Addresses mine{};
    for (size_t i = 0; i < count; ++i) {
      ibv_qp_init_attr attr{};
      attr.send_cq = sends;
      attr.recv_cq = receives;
      attr.qp_type = IBV_QPT_RC;
      attr.cap = {16, 16, 1, 1, 0};
      qps.push_back(ibv_create_qp(of.pd, &attr));
      check(qps.back() != nullptr, "ibv_create_qp");
      mine.qpns[i] = qps.back()->qp_num;
    }
    ibv_query_gid(of.context, 1, of.index, &mine.gid);
    mine.memory = reinterpret_cast<uintptr_t>(of.memory);
    mine.rkey = of.mr->rkey;
    peer = talk.exchange(mine);
    for (size_t i = 0; i < count; ++i) {
      const char* const missed = rc::connect(qps[i], peer.qpns[i], peer.gid, of.index);
      check(missed == nullptr, "the queue pair does not come to", missed);
      receive(i);
    }
    talk.meet();
  }
  ~Links() {
    for (ibv_qp* qp : qps) check(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  }
  void receive(size_t at) {
    ibv_sge sge = device.at(1);
    ibv_recv_wr wr{at, nullptr, &sge, 1}, *bad = nullptr;
    check(ibv_post_recv(qps[at], &wr, &bad) == 0, "ibv_post_recv");
  }
  void send(size_t at) {
    ibv_sge sge = device.at(0);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = at;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    check(ibv_post_send(qps[at], &wr, &bad) == 0, "ibv_post_send");
  }
  void write(size_t at) {
    ibv_sge sge = device.at(0);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {peer.memory + 2 * sizeof(uint64_t), peer.rkey};
    check(ibv_post_send(qps[at], &wr, &bad) == 0, "ibv_post_send");
  }
};

// ---- order

struct Order {
  const char* name;
  size_t links;
  bool writes, polls_in_thread;
};

// The asker posts a request, and the answerer answers by way of the next queue pair.
void ask(Links& links, ibv_cq* cq, const Order& how, uint64_t rounds) {
  std::atomic<uint64_t> answered = 0;
  uint64_t early = 0;
  const auto poll = [&](uint64_t until) {
    for (uint64_t requests = answered; answered < until || requests < until;) {
      ibv_wc wc{};
      if (ibv_poll_cq(cq, 1, &wc) == 0) {
        std::this_thread::yield();
        continue;
      }
      check(wc.status == IBV_WC_SUCCESS, "a completion:", ibv_wc_status_str(wc.status));
      if (wc.opcode != IBV_WC_RECV) {
        ++requests;
        continue;
      }
      if (requests <= answered) ++early;
      links.receive(wc.wr_id);
      ++answered;
    }
  };
  std::thread poller;
  if (how.polls_in_thread) poller = std::thread(poll, rounds);
  for (uint64_t round = 0; round < rounds; ++round) {
    links.device.memory[0] = round + 1;
    how.writes ? links.write(round % how.links) : links.send(round % how.links);
    if (!how.polls_in_thread) poll(round + 1);
    while (answered <= round) std::this_thread::yield();
  }
  if (poller.joinable()) poller.join();
  std::printf("order: %s: %lu rounds, %lu answers before their requests\n", how.name, rounds,
              early);
  check(early == 0, "an answer was polled before the completion of its request:", how.name);
}

void answer(Links& links, ibv_cq* cq, const Order& how, uint64_t rounds) {
  for (uint64_t round = 0; round < rounds; ++round) {
    const volatile uint64_t& sign = links.device.memory[2];
    bool asked = false;
    for (bool done = round == 0; !asked || !done;) {  // the completion of the last answer too
      ibv_wc wc{};
      if (how.writes && sign == round + 1) asked = true;
      if (ibv_poll_cq(cq, 1, &wc) == 0) {
        std::this_thread::yield();
        continue;
      }
      check(wc.status == IBV_WC_SUCCESS, "a completion:", ibv_wc_status_str(wc.status));
      if (wc.opcode != IBV_WC_RECV) {
        done = true;
        continue;
      }
      asked = true;
      links.receive(wc.wr_id);
    }
    links.send((round + 1) % how.links);
  }
}

void orders(Device& device, const Talk& talk, bool asks, uint64_t rounds) {
  constexpr Order kAll[] = {
      {"SEND, one queue pair", 1, false, false},
      {"SEND, one queue pair, another thread polls", 1, false, true},
      {"WRITE, one queue pair", 1, true, false},
      {"WRITE, one queue pair, another thread polls", 1, true, true},
      {"SEND, some queue pairs, another thread polls", 3, false, true},
      {"SEND, many queue pairs", kMost, false, false},
      {"SEND, many queue pairs, another thread polls", kMost, false, true},
      {"WRITE, many queue pairs", kMost, true, false},
  };
  for (const Order& how : kAll) {
    ibv_cq* const cq = ibv_create_cq(device.context, 512, nullptr, nullptr, 0);
    device.memory[2] = 0;
    {
      Links links(device, talk, how.links, cq, cq);
      asks ? ask(links, cq, how, rounds) : answer(links, cq, how, rounds);
      talk.meet();
    }
    check(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
    talk.meet();
  }
}

// ---- events

// A CQ with a channel of its own, polled only when an event has come.
class Watched {
 public:
  Watched(Device& device, const char* name) : name_(name) {
    channel_ = ibv_create_comp_channel(device.context);
    cq_ = ibv_create_cq(device.context, 64, nullptr, channel_, 0);
    check(cq_ != nullptr && ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
  }
  ~Watched() {
    ibv_ack_cq_events(cq_, events_);
    check(ibv_destroy_cq(cq_) == 0 && ibv_destroy_comp_channel(channel_) == 0, "destroy", name_);
  }
  [[nodiscard]] ibv_cq* cq() const { return cq_; }
  [[nodiscard]] const char* name() const { return name_; }
  // Takes one event and what stands, and asks for the next event. The first of the completions.
  ibv_wc next() {
    constexpr int kPatience = 30'000;  // ms
    ibv_wc first{};
    for (bool found = false; !found;) {
      pollfd ready{channel_->fd, POLLIN, 0};
      check(::poll(&ready, 1, kPatience) == 1, "no event comes:", name_);
      ibv_cq* told = nullptr;
      void* its = nullptr;
      check(ibv_get_cq_event(channel_, &told, &its) == 0, "ibv_get_cq_event");
      ++events_;
      const int stood = drain(&first);
      check(stood > 0 || taken_ > 0, "an event without a completion:", name_);
      found = stood > 0;
      check(ibv_req_notify_cq(cq_, 0) == 0, "ibv_req_notify_cq");
      // What is taken here has an event, too, or had it.
      ibv_wc other{};
      taken_ = drain(&other);
      if (!found && taken_ > 0) first = other;
      found = found || taken_ > 0;
    }
    return first;
  }

 private:
  int drain(ibv_wc* first) {
    int all = 0;
    for (ibv_wc wc{}; ibv_poll_cq(cq_, 1, &wc) == 1; ++all)
      if (all == 0) *first = wc;
    return all;
  }

  const char* name_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  unsigned events_ = 0;
  int taken_ = 0;
};

void expect(const Watched& where, const ibv_wc& wc, ibv_wc_status status) {
  if (wc.status != status) fail(where.name(), ibv_wc_status_str(wc.status));
}

// A message each way, every completion of which is awaited by its event.
void meet(Links& links, Watched& sends, Watched& receives, bool first) {
  if (first) links.send(0);
  expect(receives, receives.next(), IBV_WC_SUCCESS);
  links.receive(0);
  if (!first) links.send(0);
  expect(sends, sends.next(), IBV_WC_SUCCESS);
}

// In ERR: what was posted before, and then what is posted later.
void end(Links& links, Watched& sends, Watched& receives) {
  expect(receives, receives.next(), IBV_WC_WR_FLUSH_ERR);
  links.send(0);
  expect(sends, sends.next(), IBV_WC_WR_FLUSH_ERR);
  links.receive(0);
  expect(receives, receives.next(), IBV_WC_WR_FLUSH_ERR);
}

void events(Device& device, const Talk& talk, bool first, uint64_t rounds, const char* go) {
  phase = "events";
  Watched sends(device, "the send CQ"), receives(device, "the receive CQ");
  {
    Links links(device, talk, 1, sends.cq(), receives.cq());
    for (uint64_t round = 0; round < rounds; ++round) meet(links, sends, receives, first);
    talk.meet();
    std::printf("events: %lu rounds; sleeps\n", rounds);
    std::fflush(stdout);
    while (::access(go, F_OK) != 0) ::usleep(20'000);
    talk.meet();
    phase = "after the takeover";
    for (uint64_t round = 0; round < 10; ++round) meet(links, sends, receives, first);
    talk.meet();
    phase = "a queue pair in ERR";
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    check(ibv_modify_qp(links.qps[0], &attr, IBV_QP_STATE) == 0, "ibv_modify_qp");
    end(links, sends, receives);
    talk.meet();
  }
  phase = "a request that fails";
  for (uint64_t round = 0; round < 50; ++round) {  // a request that fails, at both ends
    Links links(device, talk, 1, sends.cq(), receives.cq());
    if (first) {
      links.peer.rkey ^= 0x5500;
      links.write(0);
      expect(sends, sends.next(), IBV_WC_REM_ACCESS_ERR);
    }
    end(links, sends, receives);
    talk.meet();
  }
  phase = "the next connection";
  {  // nothing is posted: what comes is that of the next connection
    Links links(device, talk, 1, sends.cq(), receives.cq());
    meet(links, sends, receives, first);
    talk.meet();
  }
  std::printf("events: each had its completion\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) fail("arguments: DEVICE GID_INDEX ADDRESS ROUNDS GO [PEER]");
  Device device(argv[1], std::atoi(argv[2]));
  const bool asks = argc > 6;
  const auto rounds = static_cast<uint64_t>(std::atoll(argv[4]));
  const Talk talk(argv[3], asks ? argv[6] : nullptr, kPort);
  orders(device, talk, asks, rounds);
  events(device, talk, asks, std::min<uint64_t>(rounds, 1000), argv[5]);
  return 0;
}
