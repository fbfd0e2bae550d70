// bench_micro: single calls of the library, in one process, by Google Benchmark. Queue pairs are
// connected to others of the process, so that nobody else takes part.
//
//   bench_micro --benchmark_filter=poll_one_active --benchmark_format=json
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/bench/device.h"

namespace vrdma::bench {
namespace {

constexpr uint32_t kDepth = 64;  // of the queues that work; idle ones have less
using benchmark::State;

// Runs `timed`, which does `batch` operations, between `before` and `after`, which are not timed.
// (PauseTiming() would cost more than what is measured.)
template <typename Before, typename Timed, typename After>
void time_batches(State& state, size_t batch, Before before, Timed timed, After after) {
  using Clock = std::chrono::steady_clock;
  while (state.KeepRunningBatch(static_cast<int64_t>(batch))) {
    before();
    const auto start = Clock::now();
    timed();
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
    after();
  }
}
void nothing() {}

// Google Benchmark calls a case several times; to make a thousand queue pairs takes longer than it.
Queues& idle_queues(int64_t count) {
  static std::map<int64_t, Queues> made;
  return made.try_emplace(count, static_cast<size_t>(count)).first->second;
}

// An 8-byte inline write; one in kDepth is signaled.
void post_send(State& state) {
  Buffer buffer(4096);
  ibv_mr* mr = register_memory(buffer);
  Queues queues(1, kDepth);
  time_batches(
      state, kDepth, nothing,
      [&] {
        for (uint32_t i = 1; i <= kDepth; ++i)
          post(queues.at(0), mr, IBV_WR_RDMA_WRITE, i == kDepth);
      },
      [&] { drain(queues.cq(), 1); });
  ibv_dereg_mr(mr);
}
BENCHMARK(post_send)->UseManualTime();

// The same, its completion polled before the next: what one message costs its sender.
void post_and_poll(State& state) {
  Buffer buffer(4096);
  ibv_mr* mr = register_memory(buffer);
  Queues queues(1, kDepth);
  for (auto _ : state) {
    post(queues.at(0), mr, IBV_WR_RDMA_WRITE, true);
    drain(queues.cq(), 1);
  }
  ibv_dereg_mr(mr);
}
BENCHMARK(post_and_poll);

// An entry into a ring that nobody looks at meanwhile: a receive.
void ring_entry(State& state) {
  Buffer buffer(4096);
  ibv_mr* mr = register_memory(buffer);
  Queues queues(1, kDepth);
  time_batches(
      state, kDepth, nothing,
      [&] {
        for (uint32_t i = 0; i < kDepth; ++i) post_receive(queues.at(0), mr);
      },
      [&] {
        for (uint32_t i = 0; i < kDepth; ++i)
          post(queues.far_at(0), mr, IBV_WR_SEND, i + 1 == kDepth);
        drain(queues.cq(), kDepth);
        drain(queues.far_cq(), 1);
      });
  ibv_dereg_mr(mr);
}
BENCHMARK(ring_entry)->UseManualTime();

// The time stamp counter around each turn: two clocks would cost as much as what is measured.
class Stopwatch {
 public:
  Stopwatch() {
    constexpr int kTries = 1000;
    const uint64_t start = __rdtsc();
    for (int i = 0; i < kTries; ++i) {
      begin();
      end();
    }
    overhead_ = ticks_ / kTries;
    ticks_ = 0;
    const auto clock = Clock::now();
    while (Clock::now() - clock < std::chrono::milliseconds(20)) {
    }
    seconds_a_tick_ = std::chrono::duration<double>(Clock::now() - clock).count() /
                      static_cast<double>(__rdtsc() - start);
  }
  void begin() { begin_ = __rdtsc(); }
  void end() { ticks_ += __rdtsc() - begin_; }
  // Of `count` turns; begins anew.
  double seconds(uint64_t count) {
    const uint64_t ticks = std::exchange(ticks_, 0);
    return static_cast<double>(ticks - std::min(ticks, count * overhead_)) * seconds_a_tick_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  uint64_t begin_ = 0, ticks_ = 0, overhead_ = 0;
  double seconds_a_tick_ = 0;
};

// One queue pair works, now and then, all the others of the same completion queue idle: to poll its
// completion, when polls before found nothing.
void poll_one_active(State& state) {
  Buffer buffer(4096);
  ibv_mr* mr = register_memory(buffer);
  Queues& queues = idle_queues(state.range(0));
  ibv_qp* active = queues.at(static_cast<size_t>(state.range(0)) / 2);
  Stopwatch watch;
  ibv_wc completion;
  while (state.KeepRunningBatch(kDepth)) {
    for (uint32_t i = 0; i < kDepth; ++i) {
      post(active, mr, IBV_WR_RDMA_WRITE, true);
      watch.begin();
      drain(queues.cq(), 1);
      watch.end();
      ibv_poll_cq(queues.cq(), 1, &completion);
    }
    state.SetIterationTime(watch.seconds(kDepth));
  }
  ibv_dereg_mr(mr);
}
BENCHMARK(poll_one_active)->Arg(1)->Arg(10)->Arg(100)->Arg(1000)->UseManualTime();

// The same with what the far side sent: a message polled.
void poll_one_receiving(State& state) {
  Buffer buffer(4096);
  ibv_mr* mr = register_memory(buffer);
  Queues& queues = idle_queues(state.range(0));
  const auto active = static_cast<size_t>(state.range(0)) / 2;
  Stopwatch watch;
  ibv_wc completion;
  while (state.KeepRunningBatch(kDepth)) {
    for (uint32_t i = 0; i < kDepth; ++i) {
      post_receive(queues.at(active), mr);
      post(queues.far_at(active), mr, IBV_WR_SEND, true);
      watch.begin();
      drain(queues.cq(), 1);
      watch.end();
      drain(queues.far_cq(), 1);
      ibv_poll_cq(queues.cq(), 1, &completion);
    }
    state.SetIterationTime(watch.seconds(kDepth));
  }
  ibv_dereg_mr(mr);
}
BENCHMARK(poll_one_receiving)->Arg(1)->Arg(10)->Arg(100)->Arg(1000)->UseManualTime();

// Nothing to be found.
void poll_empty(State& state) {
  Queues& queues = idle_queues(state.range(0));
  ibv_wc completion;
  for (auto _ : state) benchmark::DoNotOptimize(ibv_poll_cq(queues.cq(), 1, &completion));
}
BENCHMARK(poll_empty)->Arg(1)->Arg(10)->Arg(100)->Arg(1000);

// Memory that was never registered, all of it touched; nor was other memory at its addresses.
void register_new(State& state) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  ibv_mr* mr = nullptr;
  time_batches(
      state, 1,
      [&] { buffers.push_back(std::make_unique<Buffer>(static_cast<size_t>(state.range(0)))); },
      [&] { mr = register_memory(*buffers.back()); },
      [&] {
        ibv_dereg_mr(mr);
        ::madvise(buffers.back()->data(), buffers.back()->size(), MADV_DONTNEED);
      });
}
BENCHMARK(register_new)->Arg(1 << 20)->Arg(64 << 20)->UseManualTime();

// The same buffer again: it was registered and deregistered before.
void register_again(State& state) {
  Buffer buffer(static_cast<size_t>(state.range(0)));
  ibv_dereg_mr(register_memory(buffer));
  ibv_mr* mr = nullptr;
  time_batches(
      state, 1, nothing, [&] { mr = register_memory(buffer); }, [&] { ibv_dereg_mr(mr); });
}
BENCHMARK(register_again)->Arg(1 << 20)->Arg(64 << 20)->UseManualTime();

// The same buffer while another registration of it stands.
void register_held(State& state) {
  Buffer buffer(static_cast<size_t>(state.range(0)));
  ibv_mr* held = register_memory(buffer);
  ibv_mr* mr = nullptr;
  time_batches(
      state, 1, nothing, [&] { mr = register_memory(buffer); }, [&] { ibv_dereg_mr(mr); });
  ibv_dereg_mr(held);
}
BENCHMARK(register_held)->Arg(1 << 20)->Arg(64 << 20)->UseManualTime();

// Both are touched.
void copy_warm(State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Buffer from(bytes), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(copy_warm)->Arg(1 << 20)->Arg(64 << 20);

// The destination is new: the kernel has to find its pages, as it has for a registration.
void copy_new(State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Buffer from(bytes);
  for (auto _ : state) {
    void* to = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (to == MAP_FAILED) fail("mmap");
    std::memcpy(to, from.data(), bytes);
    benchmark::ClobberMemory();
    munmap(to, bytes);
  }
}
BENCHMARK(copy_new)->Arg(1 << 20)->Arg(64 << 20);

}  // namespace
}  // namespace vrdma::bench

BENCHMARK_MAIN();
