#include "core/rdma/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/unit/core/rdma/world.h"

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
  // Whether a process is confirmed by `value` at `address`.
  bool confirmed(uint64_t address, uint64_t value) {
    auto loop = base::EventLoop::create().value();
    auto process = Process::identify(here.get()).value();
    EXPECT_TRUE(process->start_reach(*loop));
    int answer = -1;
    process->confirm(address, value, [&](bool ok) { answer = ok ? 1 : 0; });
    EXPECT_EQ(answer, -1);  // not at once: the page may take its time
    EXPECT_TRUE(test::run_until(*loop, [&] { return answer >= 0; }));
    return answer == 1;
  }
};

TEST_F(Processes, AreThoseWhoConnected) {
  const auto process = Process::identify(here.get());
  ASSERT_TRUE(process);
  EXPECT_EQ((*process)->pid(), ::getpid());
  EXPECT_EQ((*process)->uid(), ::getuid());
  EXPECT_EQ((*process)->start_time(), Process::start_time_of(::getpid()));
  EXPECT_NE((*process)->start_time(), 0u);
  EXPECT_NE((*process)->user_namespace(), 0u);
  pollfd alive{(*process)->pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&alive, 1, 0), 0);
}

TEST_F(Processes, AreConfirmedByTheirCookie) {
  const auto address = reinterpret_cast<uint64_t>(&cookie);
  EXPECT_TRUE(confirmed(address, cookie));
  EXPECT_FALSE(confirmed(address, cookie + 1));
  EXPECT_FALSE(confirmed(0, cookie));
  EXPECT_FALSE(confirmed(~uint64_t{0}, cookie));
  EXPECT_FALSE(confirmed(1ull << 63, cookie));
}

// However often it is met.
TEST_F(Processes, HaveOneMemoryToChange) {
  auto loop = base::EventLoop::create().value();
  const auto once = Process::identify(here.get()).value();
  const auto again = Process::find(once->identity()).value();
  ASSERT_TRUE(once->start_reach(*loop));
  ASSERT_TRUE(again->start_reach(*loop));
  EXPECT_EQ(once->reach()->memory()->changes, again->reach()->memory()->changes);
}

TEST_F(Processes, OfAnythingButASocketAreNot) {
  EXPECT_FALSE(Process::identify(-1));
  EXPECT_FALSE(Process::identify(STDERR_FILENO));
}

}  // namespace
}  // namespace vrdma::rdma
