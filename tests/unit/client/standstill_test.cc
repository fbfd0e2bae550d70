#include "client/device/standstill.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <string>

namespace vrdma::client {
namespace {

std::string carried(std::string was, std::string is, std::string now) {
  alignas(8) std::array<uint8_t, 16> a{}, b{}, c{};
  std::memcpy(a.data(), was.data(), 16);
  std::memcpy(b.data(), is.data(), 16);
  std::memcpy(c.data(), now.data(), 16);
  carry_over(a.data(), b.data(), c.data(), 16);
  return {reinterpret_cast<const char*>(c.data()), 16};
}

TEST(CarryOver, BringsWhatWasWrittenToTheOldPages) {
  EXPECT_EQ(carried("0123456789abcdef", "0123456789abcdef", "0123456789abcdef"),
            "0123456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "01X3456789abcdeY", "0123456789abcdef"),
            "01X3456789abcdeY");
}

TEST(CarryOver, KeepsWhatWasWrittenToTheNewOnes) {
  EXPECT_EQ(carried("0123456789abcdef", "0123456789abcdef", "N123456789abcdef"),
            "N123456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "01X3456789abcdef", "N123456789abcdef"),
            "N1X3456789abcdef");
  EXPECT_EQ(carried("0123456789abcdef", "X123456789abcdef", "N123456789abcdef"),
            "N123456789abcdef");
}

TEST(Spare, RecallsPagesThatAreMappedNoMore) {
  Spare spare;
  ASSERT_TRUE(spare.make());
  const uint64_t size = spare.size();
  ASSERT_GE(size, 4096u);
  for (int round = 0; round < 3; ++round) {
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const auto start = reinterpret_cast<uint64_t>(memory);
    std::memset(memory, 1, size);
    ASSERT_TRUE(spare.keep(start, size));
    std::memset(memory, 2, size);  // after it was kept, before it is exchanged
    ASSERT_EQ(::mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0),
              memory);
    std::memset(memory, 3, size);
    if (round == 1) {
      spare.forget(size);
    } else {
      uint8_t* const now = spare.copy() + Spare::kMost;
      ASSERT_TRUE(spare.recall(now, size));
      EXPECT_EQ(now[0], 2);
      EXPECT_EQ(now[size - 1], 2);
    }
    ::munmap(memory, size);
  }
  EXPECT_EQ(spare.size(), size);
}

}  // namespace
}  // namespace vrdma::client
