// fork(2) and registered memory: parent and child do not see each other's writes, and the child has
// the bytes as of the fork.
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tests/conformance/memory.h"

extern char** environ;

namespace conformance {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSize = 16 * kPage;

uint8_t* map() {
  void* memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return static_cast<uint8_t*>(memory);
}

// A pipe between parent and child: go() in one, wait() in the other.
class Signal {
 public:
  Signal() { CHECK_EQ(::pipe(ends_), 0); }
  ~Signal() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  void go() const { CHECK_EQ(::write(ends_[1], "x", 1), 1); }
  void wait() const {
    char x;
    CHECK_EQ(::read(ends_[0], &x, 1), 1);
  }

 private:
  int ends_[2];
};

// Runs `work` in a child, which ends by _exit.
pid_t child(const std::function<void()>& work) {
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid != 0) return pid;
  work();
  _exit(0);
}

void await(pid_t pid) {
  int status = -1;
  CHECK_EQ(::waitpid(pid, &status, 0), pid);
  CHECK_EQ(status, 0);
}

}  // namespace

CONFORMANCE_TEST(memory, fork_after_registration) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory + 10, kSize - 20);
  fill(memory, kSize, 1);
  const Signal parent_wrote, child_wrote;
  const pid_t pid = child([&] {
    parent_wrote.wait();
    check_filled(memory, kSize, 1);
    fill(memory, kSize, 2);
    child_wrote.go();
    parent_wrote.wait();  // and its peer too
    check_filled(memory, kSize, 2);
  });
  check_filled(memory, kSize, 1);
  fill(memory, kSize, 3);
  parent_wrote.go();
  child_wrote.wait();
  check_filled(memory, kSize, 3);
  exercise(pair, region, 7);
  parent_wrote.go();
  await(pid);
  check_filled(memory + 10, kSize - 20, 107);
  check_filled(memory, 10, 3);
  release(region);
  check_filled(memory + 10, kSize - 20, 107);
}

// The parent deregisters and unmaps while the child still reads.
CONFORMANCE_TEST(memory, fork_then_deregister) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  exercise(pair, region, 1);
  const Signal gone;
  const pid_t pid = child([&] {
    gone.wait();
    check_filled(memory, kSize, 101);
  });
  fill(memory, kSize, 9);
  release(region);
  check_filled(memory, kSize, 9);
  ::munmap(memory, kSize);
  gone.go();
  await(pid);
}

// The allocator's free memory shares pages with registered memory. A child writes there as soon as
// it allocates, but in its own pages.
CONFORMANCE_TEST(memory, fork_with_free_memory_beside) {
  struct Piece {
    uint8_t* data;
    size_t size;
  };
  for (int round = 0; round < 4; ++round) {
    std::vector<Piece> pieces;
    std::vector<Region> regions;
    for (size_t size = 24; size < 1000; size += 16) {  // allocators keep each size together
      uint8_t *first = nullptr, *last = nullptr;
      for (int i = 0; i < 8; ++i) {
        auto* data = static_cast<uint8_t*>(std::malloc(size));
        pieces.push_back({data, size});
        first = first == nullptr ? data : std::min(first, data);
        last = std::max(last, data + size);
      }
      regions.push_back(enroll(side, first, static_cast<size_t>(last - first)));
    }
    for (size_t i = 0; i < pieces.size(); i += 2) std::free(pieces[i].data);
    await(child([] {}));
    for (size_t i = 0; i < pieces.size(); i += 2)
      pieces[i].data = static_cast<uint8_t*>(std::malloc(pieces[i].size));
    for (const Piece& piece : pieces) std::memset(piece.data, 5, piece.size);
    for (const Piece& piece : pieces)
      CHECK(std::all_of(piece.data, piece.data + piece.size, [](uint8_t x) { return x == 5; }));
    for (const Region& region : regions) release(region);
    for (const Piece& piece : pieces) std::free(piece.data);
  }
}

// The first pages of a thread's heap, where malloc(3) keeps its state, which fork(3) changes in the
// child.
CONFORMANCE_TEST(memory, fork_with_the_heap_of_a_thread) {
  Signal registered, forked;
  std::thread owner([&] {
    constexpr size_t kSmall = 256;
    std::vector<void*> pieces;
    std::vector<Region> regions;
    for (int i = 0; i < 4; ++i) {
      pieces.push_back(std::malloc(kSmall));
      regions.push_back(enroll(side, static_cast<uint8_t*>(pieces.back()), kSmall));
    }
    registered.go();
    forked.wait();
    for (const Region& region : regions) release(region);
    for (void* piece : pieces) std::free(piece);
  });  // glibc checks the state when the thread ends
  registered.wait();
  await(child([] {}));
  forked.go();
  owner.join();
}

// Memory beside the descriptor of a thread that forks. The kernel writes the child's number there,
// in the child.
CONFORMANCE_TEST(memory, fork_with_the_stack_of_a_thread_beside) {
  constexpr size_t kStack = 64 * kPage, kAll = 4 * kStack;
  void* const all =
      ::mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(all != MAP_FAILED);
  // Not at a multiple of what is put in place together.
  auto* const stack = reinterpret_cast<uint8_t*>(
      (reinterpret_cast<uintptr_t>(all) + kStack) / kStack * kStack + kStack / 2);
  const Signal registered;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  CHECK_EQ(::pthread_attr_setstack(&attributes, stack, kStack), 0);
  pthread_t thread;
  const auto run = [](void* signal) -> void* {
    static_cast<const Signal*>(signal)->wait();
    pthread_mutexattr_t kind;
    pthread_mutex_t mutex;
    ::pthread_mutexattr_init(&kind);
    ::pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    ::pthread_mutex_init(&mutex, &kind);
    for (int i = 0; i < 8; ++i) {
      CHECK_EQ(::pthread_mutex_lock(&mutex), 0);
      await(child([] {}));
      CHECK_EQ(::pthread_mutex_unlock(&mutex), 0);  // EPERM: the thread has another number by now
    }
    return nullptr;
  };
  CHECK_EQ(::pthread_create(&thread, &attributes, run, const_cast<Signal*>(&registered)), 0);
  ::pthread_attr_destroy(&attributes);
  const Region region = enroll(side, stack + kStack, kSize);
  registered.go();
  CHECK_EQ(::pthread_join(thread, nullptr), 0);
  release(region);
  ::munmap(all, kAll);
}

// A process that has all its descriptors in use, but `free` of them.
CONFORMANCE_TEST(memory, fork_without_descriptors) {
  constexpr rlim_t kMost = 128;
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  rlimit before{};
  CHECK_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const size_t free : {0, 1}) {
    const Signal changed;
    fill(memory, kSize, 1);
    const rlimit few{kMost, before.rlim_max};
    CHECK_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<int> all;
    for (int fd = 0; (fd = ::dup(0)) >= 0;) all.push_back(fd);
    CHECK(all.size() >= free);
    for (size_t i = 0; i < free; ++i) {
      ::close(all.back());
      all.pop_back();
    }
    const pid_t pid = child([&] {
      changed.wait();
      check_filled(memory, kSize, 1);
      fill(memory, kSize, 2);
    });
    fill(memory, kSize, 3);
    changed.go();
    await(pid);
    check_filled(memory, kSize, 3);
    for (const int fd : all) ::close(fd);
    CHECK_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  }
  exercise(pair, region, 1);
  release(region);
}

// A child that exits by exit(3), with all handlers, takes nothing from its parent.
CONFORMANCE_TEST(memory, child_exits_in_order) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  CHECK(pid >= 0);
  if (pid == 0) std::exit(0);
  await(pid);
  exercise(pair, region, 1);
  release(region);
}

CONFORMANCE_TEST(memory, spawn_with_registered_memory) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  for (int i = 0; i < 5; ++i) {
    pid_t pid = 0;
    char* argv[] = {const_cast<char*>("true"), nullptr};
    CHECK_EQ(::posix_spawnp(&pid, "true", nullptr, nullptr, argv, environ), 0);
    await(pid);
  }
  CHECK_EQ(std::system("true"), 0);
  exercise(pair, region, 1);
  release(region);
}

// Forks while another thread registers and deregisters continuously.
CONFORMANCE_TEST(memory, fork_during_registration) {
  Pair pair(side);
  uint8_t* memory = map();
  uint8_t* other = map();
  fill(other, kSize, 4);
  const Region region = enroll(side, memory, kSize);
  std::atomic<bool> stop = false;
  std::thread registrar([&] {
    for (size_t i = 0; !stop.load(); ++i) release(enroll(side, other + i % 100, kSize / 2));
  });
  for (uint64_t i = 0; i < 60; ++i) {
    fill(memory, kSize, i);
    const Signal changed;
    const pid_t pid = child([&] {
      changed.wait();
      check_filled(memory, kSize, i);
      check_filled(other, kSize, 4);
      fill(memory, kSize, 99);
      fill(other, kSize, 98);
    });
    fill(memory, 64, 1000);
    changed.go();
    await(pid);
    check_filled(memory, 64, 1000);
    check_filled(memory + 64, kSize - 64, i, 64);
    check_filled(other, kSize, 4);
  }
  stop = true;
  registrar.join();
  exercise(pair, region, 1);
  release(region);
}

// Forks from a thread while another one writes: the child has what was written before the fork, and
// its memory does not change afterwards. (A write concurrent with the fork may be included.)
CONFORMANCE_TEST(memory, fork_while_a_thread_writes) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  constexpr size_t kCells = 64, kStep = kSize / kCells;
  const auto cell = [&](size_t i) { return reinterpret_cast<uint64_t*>(memory + i * kStep); };
  const auto value_of = [&](size_t i) { return __atomic_load_n(cell(i), __ATOMIC_ACQUIRE); };
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t value = 1; !stop.load(); ++value)
      for (size_t i = 0; i < kCells; ++i) __atomic_store_n(cell(i), value, __ATOMIC_RELEASE);
  });
  for (int n = 0; n < 40; ++n) {
    const uint64_t before = value_of(kCells - 1);
    await(child([&] {
      uint64_t seen[kCells];
      for (size_t i = 0; i < kCells; ++i) {
        seen[i] = value_of(i);
        CHECK(seen[i] >= before);
      }
      for (int k = 0; k < 1000; ++k)
        for (size_t i = 0; i < kCells; ++i) CHECK_EQ(value_of(i), seen[i]);
    }));
  }
  stop = true;
  writer.join();
  release(region);
}

// A child can open and use the device.
CONFORMANCE_TEST(memory, child_opens_the_device) {
  Pair pair(side);
  uint8_t* memory = map();
  const Region region = enroll(side, memory, kSize);
  fill(memory, kSize, 5);
  const pid_t pid = child([&] {
    check_filled(memory, kSize, 5);
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    CHECK_EQ(count, 1);
    ibv_context* context = ibv_open_device(devices[0]);
    CHECK(context != nullptr);
    ibv_free_device_list(devices);
    ibv_pd* pd = ibv_alloc_pd(context);
    CHECK(pd != nullptr);
    ibv_mr* mr = ibv_reg_mr(pd, memory, kSize, kAllAccess);
    CHECK(mr != nullptr);
    fill(memory, kSize, 6);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    check_filled(memory, kSize, 6);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
  });
  await(pid);
  check_filled(memory, kSize, 5);
  exercise(pair, region, 1);
  release(region);
}

}  // namespace conformance
