// bench_limits: what this machine can do at best, to hold vdevices against.
//
//   bench_limits cache-line ITERATIONS       two processes spin on memory they share
//   bench_limits copy BYTES ITERATIONS       memcpy into memory of another process
//   bench_limits wake HOPS ITERATIONS        blocking processes wake each other by eventfd
//   bench_limits clock                       frequency of the time stamp counter, in MHz
//
// Two processes stand on processors 0 and 1; where there is a third (wake 2), it may run on either,
// as vrdmad does. Times are taken as perftest takes them: the time stamp counter once a round trip,
// half of the difference is a sample, the median is "typical". One line of JSON on stdout, in
// nanoseconds or MiB/s.
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/median.h"

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "bench_limits: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

// Keeps the calling process on one processor, or (-1) lets it run on 0 and 1.
void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i : {0, 1})
    if (processor < 0 || processor == i) CPU_SET(i, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("cannot run on processors 0 and 1");
}

// Runs `body` in a child that ends with its parent.
template <typename Body>
pid_t spawn(int processor, Body body) {
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pin(processor);
  body();
  _exit(0);
}

double ticks_per_ns() {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const uint64_t ticks = __rdtsc();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const uint64_t passed = __rdtsc() - ticks;
  const auto time = std::chrono::duration<double, std::nano>(Clock::now() - start);
  return static_cast<double>(passed) / time.count();
}

void print_half(const std::vector<uint64_t>& stamps) {
  std::vector<uint64_t> trips(stamps.size() - 1);
  for (size_t i = 0; i < trips.size(); ++i) trips[i] = stamps[i + 1] - stamps[i];
  const double scale = 2 * ticks_per_ns();
  const auto total = static_cast<double>(stamps.back() - stamps.front());
  std::printf("{\"typical\": %.1f, \"average\": %.1f}\n",
              static_cast<double>(vrdma::bench::median(trips)) / scale,
              total / static_cast<double>(trips.size()) / scale);
}

// Memory of a file, for processes that were forked later and for itself.
char* shared(size_t bytes) {
  const int fd = memfd_create("bench", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail("memfd");
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail("mmap");
  close(fd);
  return static_cast<char*>(at);
}

// Each writes a line of the other's, as two programs do that write into each other's memory.
void cache_line(uint64_t iterations) {
  char* memory = shared(2 * 4096);
  auto& ping = *new (memory) std::atomic<uint64_t>(0);
  auto& pong = *new (memory + 4096) std::atomic<uint64_t>(0);
  const pid_t child = spawn(1, [&] {
    for (uint64_t i = 1; i <= iterations; ++i) {
      while (ping.load(std::memory_order_acquire) != i) {
      }
      pong.store(i, std::memory_order_release);
    }
  });
  pin(0);
  std::vector<uint64_t> stamps(iterations);
  for (uint64_t i = 1; i <= iterations; ++i) {
    stamps[i - 1] = __rdtsc();
    ping.store(i, std::memory_order_release);
    while (pong.load(std::memory_order_acquire) != i) {
    }
  }
  waitpid(child, nullptr, 0);
  print_half(stamps);
}

// The same source and the same destination again and again, as ib_write_bw does. The destination's
// owner has touched it and sleeps.
void copy(size_t bytes, uint64_t iterations) {
  char* destination = shared(bytes);
  int ready[2];
  if (pipe(ready) != 0) fail("pipe");
  const pid_t child = spawn(0, [&] {
    std::memset(destination, 1, bytes);
    if (write(ready[1], "", 1) != 1) _exit(1);
    pause();
  });
  pin(1);
  char byte;
  if (read(ready[0], &byte, 1) != 1) fail("the other process");
  std::vector<char> source(bytes, 2);
  std::memcpy(destination, source.data(), bytes);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < iterations; ++i) {
    std::memcpy(destination, source.data(), bytes);
    asm volatile("" : : "r"(destination), "r"(source.data()) : "memory");
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf("{\"rate\": %.1f}\n", static_cast<double>(bytes) * static_cast<double>(iterations) /
                                        1048576 / time.count());
}

void take(int fd) {
  uint64_t count;
  if (read(fd, &count, sizeof count) != sizeof count) fail("read of an eventfd");
}
void give(int fd) {
  const uint64_t one = 1;
  if (write(fd, &one, sizeof one) != sizeof one) fail("write to an eventfd");
}
int event() {
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) fail("eventfd");
  return fd;
}

// HOPS 1: two processes; 2: a third between them, which both ways go through. All block.
void wake(int hops, uint64_t iterations) {
  const int there = event(), back = event();
  const int far_there = hops == 2 ? event() : there, far_back = hops == 2 ? event() : back;
  std::vector<pid_t> children;
  children.push_back(spawn(1, [&] {
    for (uint64_t i = 0; i < iterations; ++i) {
      take(far_there);
      give(far_back);
    }
  }));
  if (hops == 2)
    children.push_back(spawn(-1, [&] {
      for (uint64_t i = 0; i < iterations; ++i) {
        take(there);
        give(far_there);
        take(far_back);
        give(back);
      }
    }));
  pin(0);
  std::vector<uint64_t> stamps(iterations);
  for (auto& stamp : stamps) {
    stamp = __rdtsc();
    give(there);
    take(back);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  print_half(stamps);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (what == "cache-line" && argc == 3 && number(2) > 1) {
    cache_line(number(2));
  } else if (what == "copy" && argc == 4 && number(2) > 0 && number(3) > 0) {
    copy(number(2), number(3));
  } else if (what == "wake" && argc == 4 && (number(2) == 1 || number(2) == 2) && number(3) > 1) {
    wake(static_cast<int>(number(2)), number(3));
  } else if (what == "clock" && argc == 2) {
    std::printf("{\"mhz\": %.3f}\n", ticks_per_ns() * 1000);
  } else {
    std::fprintf(stderr,
                 "usage: bench_limits cache-line ITERATIONS | copy BYTES ITERATIONS |\n"
                 "                    wake 1|2 ITERATIONS | clock\n");
    return 2;
  }
  return 0;
}
