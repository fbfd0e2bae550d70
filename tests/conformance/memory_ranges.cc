// Registrations that overlap or touch, and later use of their addresses.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "tests/conformance/memory.h"

namespace conformance {

namespace {

constexpr size_t kPage = 4096;

uint8_t* map(size_t size, void* at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0);
  void* memory = ::mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  CHECK(memory != MAP_FAILED);
  return static_cast<uint8_t*>(memory);
}

void refused(const Side& side, void* addr, size_t length, int error) {
  errno = 0;
  CHECK(ibv_reg_mr(side.pd, addr, length, kAllAccess) == nullptr);
  CHECK_EQ(errno, error);
}

// a writes into each of b's remaining regions, and b checks; regions overlap, so one by one.
void check_left(Pair& pair, const std::vector<Region>& left, const Region& plain, uint64_t key) {
  const Side& side = pair.side;
  for (size_t i = 0; i < left.size(); ++i) {
    const Remote remote = side.exchange(left[i].remote());
    if (side.is_a()) {
      fill(plain.data, remote.size, key + i);
      pair.qp.write(i, {plain.sge(0, remote.size)}, remote);
      pair.cq.expect(i);
    }
    side.meet(1);
    if (!side.is_a()) check_filled(left[i].data, left[i].size, key + i);
    side.meet(2);
  }
}

// Three regions (offset, length) of one piece of memory, deregistered in each of the six orders.
void every_order(const Side& side, const std::array<std::array<size_t, 2>, 3>& places) {
  uint8_t* memory = map(16 * kPage);
  uint8_t* other = map(16 * kPage);
  Pair pair(side);
  const Region plain = enroll(side, other, 16 * kPage);
  std::array<int, 3> order{0, 1, 2};
  uint64_t key = 1;
  do {
    fill(memory, 16 * kPage, 77);
    std::vector<Region> left;
    for (const auto& [offset, length] : places)
      left.push_back(enroll(side, memory + offset, length));
    check_left(pair, left, plain, key += 10);
    std::array<Region, 3> all{left[0], left[1], left[2]};
    for (const int gone : order) {
      const auto* data = all[static_cast<size_t>(gone)].data;
      std::erase_if(left,
                    [&](const Region& one) { return one.mr == all[static_cast<size_t>(gone)].mr; });
      const uint8_t before = data[0];
      release(all[static_cast<size_t>(gone)]);
      CHECK_EQ(data[0], before);
      check_left(pair, left, plain, key += 10);
    }
    // Bytes outside of all regions are unchanged.
    std::vector<bool> covered(16 * kPage);
    for (const auto& [offset, length] : places)
      std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(offset), length, true);
    for (size_t i = 0; i < covered.size(); ++i)
      if (!covered[i]) check_filled(memory + i, 1, 77, i);
  } while (std::next_permutation(order.begin(), order.end()));
  release(plain);
  ::munmap(memory, 16 * kPage);
}

}  // namespace

CONFORMANCE_TEST(memory, unmapped) {
  uint8_t* memory = map(8 * kPage);
  CHECK_EQ(::munmap(memory + 4 * kPage, kPage), 0);
  refused(side, memory + 4 * kPage, kPage, EFAULT);
  refused(side, memory, 8 * kPage, EFAULT);
  refused(side, memory + 3 * kPage, kPage + 1, EFAULT);
  refused(side, memory + 5 * kPage - 1, 2, EFAULT);
  refused(side, nullptr, 1, EFAULT);
  refused(side, reinterpret_cast<uint8_t*>(UINTPTR_MAX - 8), 4, EFAULT);
  const Region below = enroll(side, memory, 4 * kPage),
               above = enroll(side, memory + 5 * kPage, 10);
  release(below);
  release(above);
  void* closed = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  refused(side, closed, kPage, EFAULT);
  CHECK(ibv_reg_mr(side.pd, memory + 100, SIZE_MAX - 50, kAllAccess) == nullptr);
}

CONFORMANCE_TEST(memory, same_range_thrice) {
  every_order(side, {{{kPage, 3 * kPage}, {kPage, 3 * kPage}, {kPage, 3 * kPage}}});
}

CONFORMANCE_TEST(memory, overlapping_ranges) {
  every_order(side, {{{100, 5 * kPage}, {2 * kPage + 7, 6 * kPage}, {4 * kPage, 300}}});
}

CONFORMANCE_TEST(memory, neighbours_in_a_page) {
  every_order(side, {{{10, 100}, {110, 1000}, {1110, 5000}}});
}

CONFORMANCE_TEST(memory, adjacent_ranges) {
  every_order(side, {{{0, 2 * kPage}, {2 * kPage, 2 * kPage}, {4 * kPage, 2 * kPage}}});
}

// Deregistered memory behaves as before.
CONFORMANCE_TEST(memory, dont_need_after_deregistration) {
  uint8_t* memory = map(16 * kPage);
  Pair pair(side);
  const Region region = enroll(side, memory, 16 * kPage);
  exercise(pair, region, 1);
  release(region);
  check_filled(memory, 16 * kPage, 101);
  CHECK_EQ(::madvise(memory + kPage, 4 * kPage, MADV_DONTNEED), 0);
  check_filled(memory, kPage, 101);
  for (size_t i = kPage; i < 5 * kPage; ++i) CHECK_EQ(memory[i], 0);
  check_filled(memory + 5 * kPage, 11 * kPage, 101, 5 * kPage);
}

// A child that is made without the library's knowledge does not change its parent's memory. It does
// not have the pages, and dies if it touches them.
CONFORMANCE_TEST(memory, child_of_a_system_call) {
  uint8_t* memory = map(16 * kPage);
  Pair pair(side);
  const Region region = enroll(side, memory, 16 * kPage);
  const auto disturb = [&](uint64_t key) {
    const auto pid = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    CHECK(pid >= 0);
    if (pid == 0) {
      *static_cast<volatile uint8_t*>(memory + kPage) = 1;
      _exit(0);
    }
    int status = -1;
    CHECK_EQ(::waitpid(pid, &status, 0), pid);
    CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
    check_filled(memory, 16 * kPage, key);
  };
  exercise(pair, region, 1);
  disturb(101);
  release(region);
  disturb(101);
}

// It grows by zeros, not by data of a neighbour.
CONFORMANCE_TEST(memory, grown_after_deregistration) {
  uint8_t* memory = map(16 * kPage);
  Pair pair(side);
  const Region region = enroll(side, memory, 8 * kPage);
  const Region neighbour = enroll(side, memory + 8 * kPage, 8 * kPage);
  exercise(pair, region, 1);
  exercise(pair, neighbour, 2);
  release(region);
  auto* grown = static_cast<uint8_t*>(::mremap(memory, 8 * kPage, 16 * kPage, MREMAP_MAYMOVE));
  CHECK(grown != MAP_FAILED);
  check_filled(grown, 8 * kPage, 101);
  for (size_t i = 8 * kPage; i < 16 * kPage; ++i) CHECK_EQ(grown[i], 0);
  fill(grown, 16 * kPage, 3);
  check_filled(memory + 8 * kPage, 8 * kPage, 102);
  const Region moved = enroll(side, grown, 16 * kPage);
  exercise(pair, moved, 4);
  exercise(pair, neighbour, 5);
  release(moved);
  release(neighbour);
  check_filled(grown, 16 * kPage, 104);
  check_filled(memory + 8 * kPage, 8 * kPage, 105);
}

// Memory that is freed and mapped again between two registrations, with another protection or its
// pages discarded: each registration finds the memory as it is then.
CONFORMANCE_TEST(memory, changed_between_registrations) {
  uint8_t* memory = map(8 * kPage);
  Pair pair(side);
  const auto use = [&](uint64_t salt) {
    const Region region = enroll(side, memory, 8 * kPage);
    exercise(pair, region, salt);
    release(region);
    check_filled(memory, 8 * kPage, 100 + salt);
  };
  use(1);
  CHECK_EQ(::munmap(memory, 8 * kPage), 0);
  refused(side, memory, 8 * kPage, EFAULT);
  CHECK(map(8 * kPage, memory) == memory);
  for (size_t i = 0; i < 8 * kPage; ++i) CHECK_EQ(memory[i], 0);
  use(2);
  CHECK_EQ(::mprotect(memory + kPage, kPage, PROT_READ), 0);
  refused(side, memory, 8 * kPage, EFAULT);
  CHECK_EQ(::mprotect(memory + kPage, kPage, PROT_READ | PROT_WRITE), 0);
  use(3);
  CHECK_EQ(::madvise(memory, 8 * kPage, MADV_DONTNEED), 0);
  const Region zeros = enroll(side, memory, 8 * kPage);
  for (size_t i = 0; i < 8 * kPage; ++i) CHECK_EQ(memory[i], 0);
  release(zeros);
  CHECK(map(2 * kPage, memory + 3 * kPage) == memory + 3 * kPage);
  fill(memory, 8 * kPage, 7);
  use(4);
}

// RLIMIT_FSIZE does not limit memory, and the program gets no signal.
CONFORMANCE_TEST(memory, small_files_only) {
  uint8_t* memory = map(16 * kPage);
  const rlimit small{1000, RLIM_INFINITY};
  CHECK_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  CHECK(::signal(SIGXFSZ, [](int) { _exit(9); }) != SIG_ERR);
  Pair pair(side);
  fill(memory, 16 * kPage, 5);
  const Region alone = enroll(side, memory, 8 * kPage);
  check_filled(memory, 16 * kPage, 5);
  exercise(pair, alone, 1);
  std::thread([&] {
    const Region beside = enroll(side, memory, 16 * kPage);
    check_filled(memory + 8 * kPage, 8 * kPage, 5, 8 * kPage);
    release(beside);
  }).join();
  release(alone);
  check_filled(memory, 8 * kPage, 101);
}

// A registered range is unmapped, and the address reused while the old registration exists.
CONFORMANCE_TEST(memory, address_reused) {
  Pair pair(side);
  uint8_t* memory = map(8 * kPage);
  const Region old = enroll(side, memory, 8 * kPage);
  exercise(pair, old, 1);
  CHECK_EQ(::munmap(memory, 8 * kPage), 0);
  refused(side, memory, 8 * kPage, EFAULT);
  CHECK(map(8 * kPage, memory) == memory);
  for (size_t i = 0; i < 8 * kPage; ++i) CHECK_EQ(memory[i], 0);
  fill(memory, 8 * kPage, 50);
  const Region fresh = enroll(side, memory, 8 * kPage);
  check_filled(memory, 8 * kPage, 50);
  exercise(pair, fresh, 2);
  release(old);
  check_filled(memory, 8 * kPage, 102);
  exercise(pair, fresh, 3);
  release(fresh);
  check_filled(memory, 8 * kPage, 103);
}

// The same, but only the middle is replaced, and the new mapping is never registered.
CONFORMANCE_TEST(memory, middle_replaced) {
  Pair pair(side);
  uint8_t* memory = map(8 * kPage);
  const Region region = enroll(side, memory, 8 * kPage);
  exercise(pair, region, 1);
  CHECK(map(2 * kPage, memory + 3 * kPage) == memory + 3 * kPage);
  fill(memory + 3 * kPage, 2 * kPage, 60);
  release(region);
  check_filled(memory, 3 * kPage, 101);
  check_filled(memory + 3 * kPage, 2 * kPage, 60);
  check_filled(memory + 5 * kPage, 3 * kPage, 101, 5 * kPage);
}

// realloc(3) of registered memory moves its pages, and the data with them.
CONFORMANCE_TEST(memory, moved) {
  Pair pair(side);
  uint8_t* memory = map(8 * kPage);
  const Region region = enroll(side, memory, 8 * kPage);
  exercise(pair, region, 1);
  void* moved = ::mremap(memory, 8 * kPage, 4096 * kPage, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED);
  check_filled(static_cast<uint8_t*>(moved), 8 * kPage, 101);
  release(region);
  check_filled(static_cast<uint8_t*>(moved), 8 * kPage, 101);
  const Region again = enroll(side, moved, 8 * kPage);
  exercise(pair, again, 2);
  release(again);
}

// The same memory repeatedly: nothing is exhausted or lost.
CONFORMANCE_TEST(memory, a_thousand_times) {
  Pair pair(side);
  uint8_t* memory = map(4 * kPage);
  fill(memory, 4 * kPage, 70);
  for (int i = 0; i < 1000; ++i) {
    const Region region = enroll(side, memory + i % 97, 2 * kPage);
    if (i % 250 == 0) {
      const Region whole = enroll(side, memory, 4 * kPage);
      exercise_read_only(pair, whole, 70);
      release(whole);
    }
    release(region);
  }
  check_filled(memory, 4 * kPage, 70);
}

// The addresses of a region need not be those of its memory.
CONFORMANCE_TEST(memory, other_address_by_iova) {
  Pair pair(side);
  uint8_t* memory = map(2 * kPage);
  constexpr uint64_t kIova = 0x5000'0000;
  ibv_mr* mr = ibv_reg_mr_iova(side.pd, memory + 8, kPage, kIova, kAllAccess);
  CHECK(mr != nullptr);
  const Remote remote = side.exchange(Remote{kIova, kPage, mr->rkey, 0});
  if (side.is_a()) {
    fill(memory + 8, kPage, 30);
    pair.qp.write(1, {ibv_sge{kIova + 10, 100, mr->lkey}}, remote, 20);
    pair.cq.expect(1);
  }
  side.meet(1);
  if (!side.is_a()) check_filled(memory + 8 + 20, 100, 30, 10);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace conformance
