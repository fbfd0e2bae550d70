#include "core/rdma/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace vrdma::rdma {
namespace {

struct Processes : testing::Test {
  std::array<int, 2> ends{};
  base::Fd here, there;
  uint64_t cookie = 0x1122334455667788;

  Processes() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    here = base::Fd(ends[0]);
    there = base::Fd(ends[1]);
  }
  auto identify(uint64_t address, uint64_t value) const {
    return Process::identify(here.get(), address, value);
  }
};

TEST_F(Processes, AreKnownByTheirCookie) {
  const auto process = identify(reinterpret_cast<uint64_t>(&cookie), cookie);
  ASSERT_TRUE(process);
  EXPECT_EQ((*process)->pid(), ::getpid());
  EXPECT_EQ((*process)->uid(), ::getuid());
  EXPECT_NE((*process)->start_time(), 0u);
  EXPECT_NE((*process)->user_namespace(), 0u);
  pollfd alive{(*process)->pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&alive, 1, 0), 0);
}

TEST_F(Processes, WithAnotherCookieAreNot) {
  EXPECT_EQ(identify(reinterpret_cast<uint64_t>(&cookie), cookie + 1).error().code(), EPERM);
  EXPECT_EQ(identify(0, cookie).error().code(), EPERM);
  EXPECT_EQ(identify(~uint64_t{0}, cookie).error().code(), EPERM);
  EXPECT_EQ(identify(1ull << 63, cookie).error().code(), EPERM);
}

TEST_F(Processes, OfAnythingButASocketAreNot) {
  EXPECT_FALSE(Process::identify(-1, 0, 0));
  EXPECT_FALSE(Process::identify(STDERR_FILENO, 0, 0));
}

}  // namespace
}  // namespace vrdma::rdma
