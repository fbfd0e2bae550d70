// bench_gaps SESSIONS: 8-byte WRITEs without a pause, and the longest time that one took.
//
// As many processes have a session of the vdevice each. The first one writes to the memory of the
// second one, the others have a connected queue pair and sleep. The first one prints "begun" when
// all are connected. At each SIGUSR1 it prints the longest WRITE since the last one, in
// microseconds, from ibv_post_send until its completion was polled; it first completes a WRITE that
// it posted after the signal. Ends at SIGTERM, or if no signal comes for a minute.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include "tests/bench/device.h"

namespace vrdma::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kPatience = 60;  // seconds

// In memory that all processes share.
struct Meeting {
  std::atomic<uint32_t> writer = 0, target = 0;  // numbers of their queue pairs
  std::atomic<uint32_t> connected = 0;
  uint64_t address = 0;  // of the target's memory; set before its number
  uint32_t rkey = 0;
};

Meeting& make_meeting() {
  void* const page =
      ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) fail("mmap");
  return *new (page) Meeting;
}

uint32_t wait_for(const std::atomic<uint32_t>& value, uint32_t least) {
  while (value < least) {
    if (::waitpid(-1, nullptr, WNOHANG) > 0) fail("a process ended");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return value;
}

[[noreturn]] void be_connected(Meeting& meeting, bool target) {
  const Buffer buffer(4096);
  const ibv_mr* mr = register_memory(buffer);
  ibv_qp* qp = make_qp(make_cq(16), 16);
  if (target) {
    meeting.address = reinterpret_cast<uintptr_t>(mr->addr);
    meeting.rkey = mr->rkey;
    meeting.target = qp->qp_num;
    join(qp, wait_for(meeting.writer, 1));
  } else {
    join_itself(qp);
  }
  ++meeting.connected;
  for (;;) ::pause();
}

volatile std::sig_atomic_t g_asked = 0;

[[noreturn]] void write_on(Meeting& meeting, uint32_t others) {
  ibv_cq* cq = make_cq(16);
  ibv_qp* qp = make_qp(cq, 16);
  meeting.writer = qp->qp_num;
  join(qp, wait_for(meeting.target, 1));
  wait_for(meeting.connected, others);
  uint64_t word = 0;
  ibv_sge piece{reinterpret_cast<uintptr_t>(&word), sizeof word, 0};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = meeting.address;
  request.wr.rdma.rkey = meeting.rkey;
  std::puts("begun");
  for (Clock::duration longest{};;) {
    const bool asked = g_asked != 0;
    const auto began = Clock::now();
    if (ibv_post_send(qp, &request, &bad) != 0) fail("ibv_post_send");
    drain(cq, 1);
    longest = std::max(longest, Clock::now() - began);
    if (!asked) continue;
    g_asked = 0;  // before the answer, because the next signal may follow it at once
    ::alarm(kPatience);
    std::printf("%.1f\n", std::chrono::duration<double, std::micro>(longest).count());
    longest = {};
  }
}

}  // namespace
}  // namespace vrdma::bench

int main(int argc, char** argv) {
  using namespace vrdma::bench;
  const long sessions = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (sessions < 2) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::signal(SIGUSR1, [](int) { g_asked = 1; });
  Meeting& meeting = make_meeting();
  for (long i = 1; i < sessions; ++i) {
    const pid_t child = ::fork();
    if (child < 0) fail("fork");
    if (child > 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_connected(meeting, i == 1);
  }
  ::alarm(kPatience);
  write_on(meeting, static_cast<uint32_t>(sessions - 1));
}
