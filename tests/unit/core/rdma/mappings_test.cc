#include "core/rdma/mappings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>

namespace vrdma::rdma {
namespace {

constexpr uint64_t kOfMapping = 4096;

// Four pages: for both, to read, for both, none.
using Permit = bool (*)(const base::Fd& maps, uint64_t addr, uint64_t length, bool write);

struct Mappings : testing::TestWithParam<Permit> {
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
    return GetParam()(maps, reinterpret_cast<uint64_t>(pages) + from, length, write);
  }
};

TEST_P(Mappings, PermitToRead) {
  EXPECT_TRUE(permit(0, 3 * kOfMapping, false));
  EXPECT_TRUE(permit(3 * kOfMapping - 1, 1, false));
  EXPECT_FALSE(permit(3 * kOfMapping - 1, 2, false));
  EXPECT_FALSE(permit(3 * kOfMapping, 1, false));
}

TEST_P(Mappings, PermitToWrite) {
  EXPECT_TRUE(permit(0, kOfMapping, true));
  EXPECT_TRUE(permit(2 * kOfMapping, kOfMapping, true));
  EXPECT_FALSE(permit(0, kOfMapping + 1, true));
  EXPECT_FALSE(permit(2 * kOfMapping - 1, 2, true));
}

TEST_P(Mappings, ThatAreNot) {
  EXPECT_FALSE(GetParam()(maps, 0, 1, false));
  EXPECT_FALSE(GetParam()(maps, UINT64_MAX - 1, 4, false));
  EXPECT_FALSE(GetParam()(maps, uint64_t{1} << 62, 4, false));
  EXPECT_FALSE(GetParam()(base::Fd(), reinterpret_cast<uint64_t>(pages), 4, false));
  EXPECT_TRUE(permit(4 * kOfMapping, 0, true)) << "nothing";
}

// The kernel makes a stack larger when it is touched.
TEST_P(Mappings, OfAStackThatHasNotGrown) {
  const int on_stack = 0;
  const auto here = reinterpret_cast<uint64_t>(&on_stack);
  EXPECT_TRUE(GetParam()(maps, here - (1u << 20), 1u << 20, true));
}

INSTANTIATE_TEST_SUITE_P(By, Mappings, testing::Values(mappings_permit, text_permits));

}  // namespace
}  // namespace vrdma::rdma
