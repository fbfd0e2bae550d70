// Every kind of memory that a program may have can be registered, and works.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/conformance/memory.h"

namespace conformance {

namespace {

constexpr size_t kSize = 300'001;  // many pages, not a whole number

uint8_t in_data[kSize] = {1};  // .data
uint8_t in_bss[kSize];
const std::string kTemplate = "/verbs-conformance-XXXXXX";

// A file that is unlinked already, `size` bytes of pattern `key`.
int make_file(size_t size, uint64_t key) {
  const char* folder = std::getenv("TMPDIR");
  std::string name = (folder != nullptr ? folder : "/tmp") + kTemplate;
  const int fd = ::mkstemp(name.data());
  CHECK(fd >= 0);
  CHECK_EQ(::unlink(name.c_str()), 0);
  std::vector<uint8_t> bytes(size);
  fill(bytes.data(), size, key);
  CHECK_EQ(::write(fd, bytes.data(), size), static_cast<ssize_t>(size));
  return fd;
}

std::vector<uint8_t> contents(int fd, size_t size) {
  std::vector<uint8_t> bytes(size);
  CHECK_EQ(::pread(fd, bytes.data(), size, 0), static_cast<ssize_t>(size));
  return bytes;
}

void* map(size_t size, int flags, int prot = PROT_READ | PROT_WRITE, int fd = -1) {
  void* memory = ::mmap(nullptr, size, prot, flags, fd, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

// Registers, exercises and deregisters; the content remains afterwards.
void run(const Side& side, void* memory, size_t size) {
  Pair pair(side);
  const Region region = enroll(side, memory, size);
  exercise(pair, region, 5);
  release(region);
  check_filled(region.data, size, 105);
}

void cannot_be_written(const Side& side, void* memory, size_t size) {
  errno = 0;
  CHECK(ibv_reg_mr(side.pd, memory, size, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK_EQ(errno, EFAULT);
  CHECK(ibv_reg_mr(side.pd, memory, size, kAllAccess) == nullptr);
  CHECK_EQ(errno, EFAULT);
}

}  // namespace

CONFORMANCE_TEST(memory, heap) {
  auto* memory = static_cast<uint8_t*>(std::malloc(kSize + 64));
  run(side, memory + 13, kSize);
  std::free(memory);
  // Small pieces, next to malloc's own data in the page.
  std::vector<uint8_t*> pieces;
  for (int i = 0; i < 50; ++i) pieces.push_back(static_cast<uint8_t*>(std::malloc(4200)));
  {
    Pair pair(side);
    for (size_t i = 0; i < pieces.size(); i += 10) {
      const Region region = enroll(side, pieces[i], 4200);
      exercise(pair, region, i);
      release(region);
    }
  }
  for (uint8_t* piece : pieces) std::free(piece);
}

CONFORMANCE_TEST(memory, anonymous) {
  void* memory = map(kSize, MAP_PRIVATE | MAP_ANONYMOUS);
  run(side, memory, kSize);
  CHECK_EQ(::munmap(memory, kSize), 0);
}

CONFORMANCE_TEST(memory, anonymous_shared) {
  void* memory = map(kSize, MAP_SHARED | MAP_ANONYMOUS);
  run(side, memory, kSize);
}

CONFORMANCE_TEST(memory, huge_pages) {
  constexpr size_t kHuge = 2u << 20;
  void* memory = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  const bool here = memory != MAP_FAILED;
  const bool there = side.exchange(here);
  if (!here || !there) skip("there are no huge pages here (vm.nr_hugepages)");
  run(side, memory, kHuge);
}

CONFORMANCE_TEST(memory, transparent_huge_pages) {
  constexpr size_t kHuge = 2u << 20;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kHuge, 4 * kHuge));
  ::madvise(memory, 4 * kHuge, MADV_HUGEPAGE);
  fill(memory, 4 * kHuge, 1);
  run(side, memory + kHuge / 2, 2 * kHuge);
  check_filled(memory, kHuge / 2, 1);
  check_filled(memory + kHuge / 2 * 5, kHuge, 1, kHuge / 2 * 5);
  std::free(memory);
}

// The file, and every other mapping of it, has the written bytes.
CONFORMANCE_TEST(memory, shared_file) {
  const int fd = make_file(kSize, 1);
  auto* memory = static_cast<uint8_t*>(map(kSize, MAP_SHARED, PROT_READ | PROT_WRITE, fd));
  auto* alias = static_cast<uint8_t*>(map(kSize, MAP_SHARED, PROT_READ | PROT_WRITE, fd));
  Pair pair(side);
  const Region region = enroll(side, memory, kSize);
  exercise(pair, region, 5);
  check_filled(alias, kSize, 105);
  fill(alias, kSize, 9);
  check_filled(memory, kSize, 9);
  exercise_read_only(pair, region, 9);
  release(region);
  check_filled(contents(fd, kSize).data(), kSize, 9);
  ::close(fd);
}

// The file does not change.
CONFORMANCE_TEST(memory, private_file) {
  const int fd = make_file(kSize, 1);
  auto* memory = static_cast<uint8_t*>(map(kSize, MAP_PRIVATE, PROT_READ | PROT_WRITE, fd));
  {
    Pair pair(side);
    const Region region = enroll(side, memory, kSize);
    exercise_read_only(pair, region, 1);
    release(region);
  }
  run(side, memory, kSize);
  check_filled(contents(fd, kSize).data(), kSize, 1);
  ::close(fd);
}

CONFORMANCE_TEST(memory, read_only_private_file) {
  const int fd = make_file(kSize, 4);
  void* memory = map(kSize, MAP_PRIVATE, PROT_READ, fd);
  cannot_be_written(side, memory, kSize);
  Pair pair(side);
  const Region region = enroll(side, memory, kSize, IBV_ACCESS_REMOTE_READ);
  exercise_read_only(pair, region, 4);
  release(region);
  check_filled(static_cast<uint8_t*>(memory), kSize, 4);
  ::close(fd);
}

CONFORMANCE_TEST(memory, read_only_shared_file) {
  const int fd = make_file(kSize, 4);
  void* memory = map(kSize, MAP_SHARED, PROT_READ, fd);
  cannot_be_written(side, memory, kSize);
  Pair pair(side);
  const Region region = enroll(side, memory, kSize, IBV_ACCESS_REMOTE_READ);
  exercise_read_only(pair, region, 4);
  release(region);
  ::close(fd);
}

CONFORMANCE_TEST(memory, read_only_anonymous) {
  void* memory = map(kSize, MAP_PRIVATE | MAP_ANONYMOUS);
  fill(static_cast<uint8_t*>(memory), kSize, 6);
  CHECK_EQ(::mprotect(memory, kSize, PROT_READ), 0);
  cannot_be_written(side, memory, kSize);
  Pair pair(side);
  const Region region = enroll(side, memory, kSize, IBV_ACCESS_REMOTE_READ);
  exercise_read_only(pair, region, 6);
  release(region);
  check_filled(static_cast<uint8_t*>(memory), kSize, 6);
  // Its protection is unchanged.
  cannot_be_written(side, memory, kSize);
}

// One half may be written, the other only read.
CONFORMANCE_TEST(memory, mixed_protection) {
  constexpr size_t kWhole = 64 * 4096;
  auto* memory = static_cast<uint8_t*>(map(kWhole, MAP_PRIVATE | MAP_ANONYMOUS));
  fill(memory, kWhole, 6);
  CHECK_EQ(::mprotect(memory + kWhole / 2, kWhole / 2, PROT_READ), 0);
  cannot_be_written(side, memory, kWhole);
  Pair pair(side);
  Region region = enroll(side, memory, kWhole, IBV_ACCESS_REMOTE_READ);
  exercise_read_only(pair, region, 6);
  release(region);
  region = enroll(side, memory, kWhole / 2);
  exercise(pair, region, 5);
  release(region);
  check_filled(memory + kWhole / 2, kWhole / 2, 6, kWhole / 2);
}

CONFORMANCE_TEST(memory, stack) {
  uint8_t memory[20'001];
  run(side, memory, sizeof memory);
}

CONFORMANCE_TEST(memory, static_data) {
  in_data[0] = 1;
  run(side, in_data, kSize);
}

CONFORMANCE_TEST(memory, static_bss) { run(side, in_bss, kSize); }

// Pages that were never touched before.
CONFORMANCE_TEST(memory, never_touched) {
  constexpr size_t kWhole = 16u << 20;
  auto* memory = static_cast<uint8_t*>(map(kWhole, MAP_PRIVATE | MAP_ANONYMOUS));
  Pair pair(side);
  const Region region = enroll(side, memory, kWhole);
  const Remote remote = side.exchange(region.remote());
  if (side.is_a()) {
    fill(memory, 100, 1);
    pair.qp.write(1, {region.sge(0, 100)}, remote, kWhole - 100);
    pair.cq.expect(1);
  }
  side.meet(1);
  for (size_t at = 4096; at < kWhole - 100; at += 4095) CHECK_EQ(memory[at], 0);
  if (!side.is_a()) check_filled(memory + kWhole - 100, 100, 1);
  release(region);
}

}  // namespace conformance
