// bench_threads: two programs with two threads each, one that spins for what the other program's
// sends and one that sleeps for it, as programs have them that do work and keep a connection
// besides.
//
//   bench_threads serve ADDRESS verbs|tcp            for one client
//   bench_threads ask ADDRESS verbs|tcp SECONDS      prints the medians of half of a round trip of
//   8
//                                                    bytes in nanoseconds: of the thread that
//                                                    spins, and of the one that sleeps
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/median.h"
#include "tests/bench/meeting.h"

namespace vrdma::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kDepth = 16;
constexpr size_t kBytes = 8;

// 8 bytes each way, in turn.
class Line {
 public:
  virtual ~Line() = default;
  virtual void send() = 0;
  virtual void receive() = 0;
};

class Verbs final : public Line {
 public:
  Verbs(int fd, bool spins)
      : memory_(kBytes),
        mr_(register_memory(memory_)),
        channel_(spins ? nullptr : ibv_create_comp_channel(device().context)),
        cq_(make_cq(2 * kDepth, channel_)),
        qp_(make_qp(cq_, kDepth)) {
    uint32_t number = qp_->qp_num;
    put(fd, &number, sizeof number);
    take(fd, &number, sizeof number);
    join(qp_, number, way_over(fd));
    for (uint32_t i = 0; i < kDepth; ++i) post_receive(qp_, mr_);
    if (channel_ != nullptr && ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
  }
  void send() override { post(qp_, mr_, IBV_WR_SEND, ++sent_ % (kDepth / 2) == 0); }
  void receive() override {
    for (ibv_wc wc{};;) {
      const int found = ibv_poll_cq(cq_, 1, &wc);
      if (found < 0 || (found == 1 && wc.status != IBV_WC_SUCCESS)) fail("ibv_poll_cq");
      if (found == 1 && wc.opcode == IBV_WC_RECV) break;
      if (found == 0 && channel_ != nullptr) sleep();
    }
    post_receive(qp_, mr_);
  }

 private:
  // What came between the last look and the request for an event has its event too.
  void sleep() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    if (ibv_req_notify_cq(cq, 0) != 0) fail("ibv_req_notify_cq");
  }

  Buffer memory_;
  ibv_mr* mr_;
  ibv_comp_channel* channel_;
  ibv_cq* cq_;
  ibv_qp* qp_;
  uint32_t sent_ = 0;
};

class Tcp final : public Line {
 public:
  Tcp(int fd, bool spins) : fd_(fd), flags_(spins ? MSG_DONTWAIT : MSG_WAITALL) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  void send() override { put(fd_, bytes_, sizeof bytes_); }
  void receive() override {
    ssize_t got = -1;
    while ((got = recv(fd_, bytes_, sizeof bytes_, flags_)) < 0 && errno == EAGAIN) {
    }
    if (got != static_cast<ssize_t>(sizeof bytes_)) fail("the other side is gone");
  }

 private:
  int fd_, flags_;
  char bytes_[kBytes] = {};
};

std::unique_ptr<Line> line(const std::string& kind, int fd, bool spins) {
  if (kind == "tcp") return std::make_unique<Tcp>(fd, spins);
  return std::make_unique<Verbs>(fd, spins);
}

void answer(Line& line) {
  for (;;) {
    line.receive();
    line.send();
  }
}

double median_of(Line& line, Clock::time_point end) {
  std::vector<double> halves;
  for (auto begun = Clock::now(); begun < end;) {
    line.send();
    line.receive();
    const auto now = Clock::now();
    halves.push_back(std::chrono::duration<double, std::nano>(now - begun).count() / 2);
    begun = now;
  }
  return median(std::move(halves));
}

void serve(const char* address, const std::string& kind) {
  const Listener listener(address);
  const int talk = listener.accept(), first = listener.accept(), second = listener.accept();
  const auto spins = line(kind, first, true), sleeps = line(kind, second, false);
  std::thread(answer, std::ref(*spins)).detach();
  std::thread(answer, std::ref(*sleeps)).detach();
  char byte = 0;
  put(talk, &byte, 1);
  while (recv(talk, &byte, 1, 0) > 0) {  // until the client closes it
  }
  std::_Exit(0);
}

void ask(const char* address, const std::string& kind, double seconds) {
  const int talk = meet(address), first = meet(address), second = meet(address);
  const auto spins = line(kind, first, true), sleeps = line(kind, second, false);
  char byte = 0;
  take(talk, &byte, 1);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  double spun = 0;
  std::thread spinner([&] { spun = median_of(*spins, end); });
  const double slept = median_of(*sleeps, end);
  spinner.join();
  std::printf("{\"spins\": %.1f, \"sleeps\": %.1f}\n", spun, slept);
  std::fflush(stdout);
  shutdown(talk, SHUT_WR);
  while (recv(talk, &byte, 1, 0) > 0) {  // until the server has ended, whose threads wait for more
  }
}

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const std::string what = argc > 3 ? argv[1] : "", kind = argc > 3 ? argv[3] : "";
  const bool known = kind == "verbs" || kind == "tcp";
  if (what == "serve" && argc == 4 && known) {
    serve(argv[2], kind);
  } else if (what == "ask" && argc == 5 && known) {
    ask(argv[2], kind, std::strtod(argv[4], nullptr));
  } else {
    std::fputs(
        "usage: bench_threads serve ADDRESS verbs|tcp\n"
        "       bench_threads ask ADDRESS verbs|tcp SECONDS\n",
        stderr);
    return 2;
  }
  return 0;
}
