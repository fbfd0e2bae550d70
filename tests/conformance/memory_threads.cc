// Threads that write into memory while it is registered and deregistered lose nothing.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/conformance/memory.h"

namespace conformance {

namespace {

constexpr size_t kPage = 4096;
constexpr int kRounds = 400;

// Writes rising numbers into cells and reads each back later: a cell with an older number lost a
// write. Runs in a separate thread until the destructor, which checks.
class Writer {
 public:
  Writer(uint8_t* memory, size_t size, size_t first, size_t step)
      : memory_(memory), size_(size), first_(first), step_(step), thread_([this] { run(); }) {}
  ~Writer() {
    stop_.store(true);
    thread_.join();
    if (lost_ != 0) fail(__FILE__, __LINE__, std::to_string(lost_) + " writes were lost");
    CHECK(rounds_ > 0);
  }

 private:
  void run() {
    uint64_t value = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      ++value;
      for (size_t at = first_; at + 8 <= size_; at += step_)
        __atomic_store_n(reinterpret_cast<uint64_t*>(memory_ + at), value, __ATOMIC_RELAXED);
      for (size_t at = first_; at + 8 <= size_; at += step_)
        if (__atomic_load_n(reinterpret_cast<uint64_t*>(memory_ + at), __ATOMIC_RELAXED) != value)
          ++lost_;
      ++rounds_;
    }
  }
  uint8_t* memory_;
  size_t size_, first_, step_;
  std::atomic<bool> stop_ = false;
  uint64_t lost_ = 0, rounds_ = 0;
  std::thread thread_;
};

uint8_t* map(size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return static_cast<uint8_t*>(memory);
}

}  // namespace

// In the region, and next to it in its first and last page.
CONFORMANCE_TEST(memory, threads_write_during_registration) {
  constexpr size_t kSize = 24 * kPage;
  uint8_t* memory = map(kSize);
  {
    const Writer dense(memory, kSize, 0, 64), sparse(memory, kSize, 8, 1024);
    for (int i = 0; i < kRounds; ++i)
      release(enroll(side, memory + 100 + i % 50, kSize - 300 - static_cast<size_t>(i) % 7));
  }
  ::munmap(memory, kSize);
}

CONFORMANCE_TEST(memory, threads_write_heap_during_registration) {
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(64, 64 * 200));
  {
    const Writer writer(memory, 64 * 200, 0, 128);
    for (int i = 0; i < kRounds; ++i) {
      release(enroll(side, memory + 64 * (i % 100), 64));
      // malloc's own words nearby change meanwhile.
      std::free(std::malloc(static_cast<size_t>(100 + i * 10)));
    }
  }
  std::free(memory);
}

// The writer faults in untouched pages while they are registered.
CONFORMANCE_TEST(memory, threads_touch_during_registration) {
  constexpr size_t kSize = 64 * kPage;
  for (int i = 0; i < 100; ++i) {
    uint8_t* memory = map(kSize);
    std::atomic<int> started = 0;
    std::thread toucher([&] {
      started = 1;
      for (size_t at = 0; at < kSize; at += kPage)
        memory[at + 5] = static_cast<uint8_t>(at / kPage);
    });
    while (started.load() == 0) {
    }
    const Region region = enroll(side, memory, kSize);
    if (i % 2 == 0) toucher.join();
    release(region);
    if (i % 2 != 0) toucher.join();
    for (size_t at = 0; at < kSize; at += kPage)
      CHECK_EQ(memory[at + 5], static_cast<uint8_t>(at / kPage));
    ::munmap(memory, kSize);
  }
}

// The kernel writes, for read(2), and does not fail.
CONFORMANCE_TEST(memory, system_calls_during_registration) {
  constexpr size_t kSize = 16 * kPage;
  uint8_t* memory = map(kSize);
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::thread reader([&] {
    int ends[2];
    CHECK_EQ(::pipe(ends), 0);
    uint8_t bytes[3000];
    for (uint64_t key = 0; !stop.load(); ++key) {
      fill(bytes, sizeof bytes, key);
      CHECK_EQ(::write(ends[1], bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
      const size_t at = key % 15 * kPage + 1000 + key % 1000;
      CHECK_EQ(::read(ends[0], memory + at, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
      check_filled(memory + at, sizeof bytes, key);
      ++calls;
    }
    ::close(ends[0]);
    ::close(ends[1]);
  });
  for (int i = 0; i < kRounds || calls.load() < 10; ++i) release(enroll(side, memory, kSize));
  stop = true;
  reader.join();
  ::munmap(memory, kSize);
}

// Threads register and deregister pieces of the same pages concurrently.
CONFORMANCE_TEST(memory, threads_register_at_once) {
  constexpr size_t kSize = 16 * kPage;
  uint8_t* memory = map(kSize);
  {
    const Writer writer(memory, kSize, 0, 256);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = 0; i < 150; ++i) {
          const Region one = enroll(side, memory + t * 3000 + i * 7, 5 * kPage);
          const Region two = enroll(side, memory + (i + t) % 8 * kPage, 3 * kPage);
          release(i % 2 == 0 ? one : two);
          release(i % 2 == 0 ? two : one);
        }
      });
    for (auto& thread : threads) thread.join();
  }
  ::munmap(memory, kSize);
}

// A peer writes into a region while others over the same pages are registered and deregistered.
CONFORMANCE_TEST(memory, peer_writes_during_registration) {
  constexpr size_t kSize = 8 * kPage;
  Pair pair(side);
  uint8_t* memory = map(kSize);
  const Region region = enroll(side, memory, kSize);
  const Remote remote = side.exchange(region.remote());
  if (side.is_a()) {
    for (uint64_t i = 1; i <= 2000; ++i) {
      const size_t at = i % 500 * 64;
      fill(memory + at, 64, i);
      pair.qp.write(i, {region.sge(at, 64)}, remote, at);
      pair.cq.expect(i);
      pair.qp.read(i, {region.sge(at, 64)}, remote, at);
      pair.cq.expect(i);
      check_filled(memory + at, 64, i);
    }
    side.tell_word(1);
  } else {
    std::atomic<bool> stop = false;
    std::thread registrar([&] {
      while (!stop.load()) {
        const Region other = enroll(side, memory + 50, kSize - 100);
        release(enroll(side, memory, 10));
        release(other);
      }
    });
    side.await_word(1);
    stop = true;
    registrar.join();
    for (uint64_t i = 1501; i <= 2000; ++i) check_filled(memory + i % 500 * 64, 64, i);
  }
  release(region);
}

}  // namespace conformance
