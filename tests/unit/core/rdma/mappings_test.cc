#include "core/rdma/mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

namespace vrdma::rdma {
namespace {

constexpr uint64_t kOfMapping = 4096;

// Four pages: for both, to read, for both, none.
struct Mappings : testing::Test {
  uint8_t* const pages = static_cast<uint8_t*>(
      ::mmap(nullptr, 4 * kOfMapping, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const base::Fd maps{::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
  Mappings() {
    EXPECT_NE(static_cast<void*>(pages), MAP_FAILED);
    EXPECT_EQ(::mprotect(pages + kOfMapping, kOfMapping, PROT_READ), 0);
    EXPECT_EQ(::munmap(pages + 3 * kOfMapping, kOfMapping), 0);
  }
  ~Mappings() override { ::munmap(pages, 3 * kOfMapping); }
  bool permit(uint64_t from, uint64_t length, bool write) {
    return mappings_permit(maps, reinterpret_cast<uint64_t>(pages) + from, length, write);
  }
};

TEST_F(Mappings, PermitToRead) {
  EXPECT_TRUE(permit(0, 3 * kOfMapping, false));
  EXPECT_TRUE(permit(3 * kOfMapping - 1, 1, false));
  EXPECT_FALSE(permit(3 * kOfMapping - 1, 2, false));
  EXPECT_FALSE(permit(3 * kOfMapping, 1, false));
}

TEST_F(Mappings, PermitToWrite) {
  EXPECT_TRUE(permit(0, kOfMapping, true));
  EXPECT_TRUE(permit(2 * kOfMapping, kOfMapping, true));
  EXPECT_FALSE(permit(0, kOfMapping + 1, true));
  EXPECT_FALSE(permit(2 * kOfMapping - 1, 2, true));
}

TEST_F(Mappings, ThatAreNot) {
  EXPECT_FALSE(mappings_permit(maps, 0, 1, false));
  EXPECT_FALSE(mappings_permit(maps, UINT64_MAX - 1, 4, false));
  EXPECT_FALSE(mappings_permit(maps, uint64_t{1} << 62, 4, false));
  EXPECT_FALSE(mappings_permit(base::Fd(), reinterpret_cast<uint64_t>(pages), 4, false));
  EXPECT_TRUE(permit(4 * kOfMapping, 0, true)) << "nothing";
}

// The kernel makes a stack larger when it is touched.
TEST_F(Mappings, OfAStackThatHasNotGrown) {
  const int on_stack = 0;
  const auto here = reinterpret_cast<uint64_t>(&on_stack);
  EXPECT_TRUE(mappings_permit(maps, here - (1u << 20), 1u << 20, true));
}

}  // namespace
}  // namespace vrdma::rdma
