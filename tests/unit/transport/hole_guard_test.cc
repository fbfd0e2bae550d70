#include "transport/hole_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "core/base/mapping.h"

namespace vrdma::transport {
namespace {

constexpr size_t kHolePage = 4096, kHoleFile = 1u << 30;

struct Holes : testing::Test {
  Holes() {
    EXPECT_TRUE(HoleGuard::start());
    EXPECT_TRUE(HoleGuard::watch(memory(), kHoleFile));
  }
  uint8_t* memory(size_t at = 0) { return map.bytes() + at; }
  uint64_t pages() const {
    struct stat status {};
    EXPECT_EQ(::fstat(file.get(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512 / kHolePage;
  }
  void make(size_t at, size_t size) {
    EXPECT_EQ(::fallocate(file.get(), 0, static_cast<off_t>(at), static_cast<off_t>(size)), 0);
  }
  base::Fd file = *base::make_memfd("test-holes", kHoleFile);
  base::Mapping map = *base::Mapping::shared(file, kHoleFile, 0, PROT_READ | PROT_WRITE);
};

TEST_F(Holes, AreNeitherReadNorWritten) {
  volatile uint8_t byte = 0;
  EXPECT_FALSE(HoleGuard::run([&] { byte = *memory(); }));
  EXPECT_FALSE(HoleGuard::run([&] { *memory(5 * kHolePage) = 1; }));
  EXPECT_FALSE(HoleGuard::run([&] { __atomic_fetch_add(memory(8), 1, __ATOMIC_RELAXED); }));
  EXPECT_EQ(pages(), 0u);
}

TEST_F(Holes, StopACopyWhereTheyBegin) {
  make(0, 2 * kHolePage);
  uint8_t bytes[3 * kHolePage];
  std::memset(bytes, 7, sizeof bytes);
  EXPECT_FALSE(HoleGuard::run([&] { std::memcpy(memory(), bytes, sizeof bytes); }));
  EXPECT_EQ(pages(), 2u);
  EXPECT_TRUE(HoleGuard::run([&] { std::memcpy(memory(), bytes, 2 * kHolePage); }));
  EXPECT_EQ(memory()[2 * kHolePage - 1], 7);
}

// Also those that the owner makes again while the window is mapped.
TEST_F(Holes, OfPagesThatWereTakenAway) {
  make(0, kHolePage);
  EXPECT_TRUE(HoleGuard::run([&] { *memory() = 1; }));
  EXPECT_EQ(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kHolePage), 0);
  EXPECT_FALSE(HoleGuard::run([&] { *memory() = 1; }));
  EXPECT_EQ(pages(), 0u);
  const uint8_t byte = 9;
  EXPECT_EQ(::pwrite(file.get(), &byte, 1, 0), 1);  // the owner, in its own name
  uint8_t seen = 0;
  EXPECT_TRUE(HoleGuard::run([&] { seen = *memory(); }));
  EXPECT_EQ(seen, 9);
}

TEST_F(Holes, OfEachThreadByItself) {
  make(0, kHolePage);
  int failed = 0;
  std::thread other([&] {
    for (int i = 0; i < 2000; ++i) failed += !HoleGuard::run([&] { *memory(7 * kHolePage) = 1; });
  });
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(HoleGuard::run([&] { *memory() = 1; }));
  other.join();
  EXPECT_EQ(failed, 2000);
  EXPECT_EQ(pages(), 1u);
}

TEST_F(Holes, ElsewhereAFaultEndsTheProgram) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not let a handler take itself away";
#endif
  EXPECT_DEATH({ *const_cast<volatile uint8_t*>(memory(9 * kHolePage)) = 1; }, "");
}

}  // namespace
}  // namespace vrdma::transport
