// bench_remote: a vdevice and one of another host, with programs that sleep while they wait.
//
//   bench_remote serve ADDRESS                                 for one client
//   bench_remote ping ADDRESS ITERATIONS PAUSE                 half round trips of 2-byte SENDs
//   bench_remote write ADDRESS BYTES SECONDS QPS DEPTH         WRITEs, DEPTH in flight on each
//   queue pair
//
// The two meet at a TCP port of ADDRESS, and take the GIDs of the addresses of that connection.
// PAUSE, in microseconds, is slept before each round trip. `serve` prints a line when it is ready.
// `ping` prints the median of half of a round trip in nanoseconds, `write` MiB and million WRITEs a
// second.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/device.h"
#include "tests/bench/median.h"
#include "tests/bench/meeting.h"

namespace vrdma::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPingDepth = 16;
constexpr uint32_t kMostQps = 4096;
constexpr double kMib = 1 << 20;

// A client's wish, and the server's answer; the numbers of as many queue pairs follow.
struct Greeting {
  uint32_t qps = 0, rkey = 0;
  uint64_t bytes = 0, address = 0;
  bool ping = false;
};

// Queue pairs of one side, on one completion queue with a channel.
class Side {
 public:
  Side(int fd, Greeting greeting, uint32_t depth)
      : greeting_(greeting),
        memory_(std::max<size_t>(greeting.bytes, 1)),
        mr_(register_memory(memory_)),
        channel_(ibv_create_comp_channel(device().context)),
        cq_(make_cq(static_cast<int>(std::min(greeting.qps * depth, 65536u)), channel_)) {
    if (ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < greeting.qps; ++i) {
      qps_.push_back(make_qp(cq_, depth));
      numbers.push_back(qps_.back()->qp_num);
    }
    Greeting mine = greeting;
    mine.rkey = mr_->rkey;
    mine.address = reinterpret_cast<uintptr_t>(mr_->addr);
    put(fd, &mine, sizeof mine);
    put(fd, numbers.data(), numbers.size() * sizeof numbers[0]);
    take(fd, &far_, sizeof far_);
    take(fd, numbers.data(), numbers.size() * sizeof numbers[0]);
    const Way way = way_over(fd);
    for (uint32_t i = 0; i < greeting.qps; ++i) {
      join(qps_[i], numbers[i], way);
      for (uint32_t j = 0; greeting.ping && j < depth; ++j) post_receive(qps_[i], mr_);
    }
    // Each is ready when the other one says so.
    char byte = 0;
    put(fd, &byte, 1);
    take(fd, &byte, 1);
  }

  void send(bool signaled) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(mr_->addr), 2, mr_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
    if (ibv_post_send(qps_[0], &request, &bad) != 0) fail("ibv_post_send");
  }
  void post_receive_again() { post_receive(qps_[0], mr_); }

  // `count` WRITEs, the last of which is signaled.
  void write(uint32_t qp, uint32_t count) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(mr_->addr), static_cast<uint32_t>(greeting_.bytes),
                  mr_->lkey};
    std::vector<ibv_send_wr> requests(count);
    for (uint32_t i = 0; i < count; ++i) {
      ibv_send_wr& each = requests[i];
      each = {};
      each.wr_id = qp;
      each.sg_list = &piece;
      each.num_sge = 1;
      each.opcode = IBV_WR_RDMA_WRITE;
      if (greeting_.bytes <= 8) each.send_flags |= IBV_SEND_INLINE;
      if (i + 1 == count) each.send_flags |= IBV_SEND_SIGNALED;
      each.wr.rdma.remote_addr = far_.address;
      each.wr.rdma.rkey = far_.rkey;
      if (i + 1 < count) each.next = &requests[i + 1];
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qps_[qp], requests.data(), &bad) != 0) fail("ibv_post_send");
  }

  // Sleeps until there is one.
  ibv_wc completion() {
    for (ibv_wc found;;) {
      int count = ibv_poll_cq(cq_, 1, &found);
      if (count == 0) {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
        ibv_ack_cq_events(cq, 1);
        if (ibv_req_notify_cq(cq, 0) != 0) fail("ibv_req_notify_cq");
        count = ibv_poll_cq(cq_, 1, &found);
      }
      if (count == 0) continue;
      if (count < 0 || found.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(found.status));
      return found;
    }
  }

 private:
  const Greeting greeting_;
  Greeting far_;
  Buffer memory_;
  ibv_mr* mr_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  std::vector<ibv_qp*> qps_;
};

void serve(const char* address) {
  const int fd = Listener(address).accept();
  Greeting wish;
  take(fd, &wish, sizeof wish);
  if (wish.qps > kMostQps) fail("too many queue pairs");
  Side side(fd, wish, kPingDepth);
  // Until the client closes the connection.
  std::thread end([fd] {
    char byte;
    while (recv(fd, &byte, 1, 0) > 0) {
    }
    std::_Exit(0);
  });
  for (;;) {
    if (side.completion().opcode != IBV_WC_RECV) continue;
    side.send(false);
    side.post_receive_again();
  }
}

Side begin(int fd, const Greeting& wish, uint32_t depth) {
  put(fd, &wish, sizeof wish);
  return {fd, wish, depth};
}

void ping(const char* address, uint64_t iterations, std::chrono::microseconds pause) {
  Side side = begin(meet(address), {1, 0, 8, 0, true}, kPingDepth);
  std::vector<double> halves;
  for (uint64_t i = 0; i < iterations; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const auto begun = Clock::now();
    side.send(i % (kPingDepth / 2) == 0);
    while (side.completion().opcode != IBV_WC_RECV) {
    }
    halves.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begun).count() / 2);
    side.post_receive_again();
  }
  std::printf("{\"typical\": %.1f}\n", median(std::move(halves)));
}

void write(const char* address, uint64_t bytes, double seconds, uint32_t qps, uint32_t depth) {
  Side side = begin(meet(address), {qps, 0, bytes, 0, false}, depth);
  // A completion tells of as many WRITEs, and as many follow.
  const uint32_t group = std::max(depth / 4, 1u);
  uint32_t open = 0;
  for (uint32_t i = 0; i < depth / group; ++i)
    for (uint32_t qp = 0; qp < qps; ++qp, ++open) side.write(qp, group);
  const auto begun = Clock::now();
  auto last = begun;
  uint64_t done = 0;
  for (bool more = true; open > 0; --open) {
    const auto found = side.completion();
    if (more) {
      done += group;
      last = Clock::now();
      more = std::chrono::duration<double>(last - begun).count() < seconds;
    }
    if (!more) continue;
    side.write(static_cast<uint32_t>(found.wr_id), group);
    ++open;
  }
  const double rate =
      static_cast<double>(done) / std::chrono::duration<double>(last - begun).count();
  std::printf("{\"rate\": %.3f, \"messages\": %.6f}\n", rate * static_cast<double>(bytes) / kMib,
              rate / 1e6);
}

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const std::string what = argc > 2 ? argv[1] : "";
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  if (what == "serve" && argc == 3) {
    serve(argv[2]);
  } else if (what == "ping" && argc == 5 && number(3) > 0) {
    ping(argv[2], number(3), std::chrono::microseconds(number(4)));
  } else if (what == "write" && argc == 7 && number(3) > 0 && number(5) > 0 &&
             number(5) <= kMostQps && number(6) > 0) {
    write(argv[2], number(3), std::strtod(argv[4], nullptr), number(5), number(6));
  } else {
    std::fprintf(stderr,
                 "usage: bench_remote serve ADDRESS | ping ADDRESS ITERATIONS PAUSE |\n"
                 "                    write ADDRESS BYTES SECONDS QPS DEPTH\n");
    return 2;
  }
  return 0;
}
