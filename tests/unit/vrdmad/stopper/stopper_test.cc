#include "vrdmad/stopper/stopper.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/ipc/layout.h"
#include "tests/unit/vrdmad/stopper/stoppers.h"
#include "vrdmad/stopper/calls.h"

namespace vrdma::vrdmad {
namespace {

using ipc::HoldPhase;
using ipc::Reached;
using stopper::may_begin_again;
using stopper::obstacle_in;
using stopper::parse_call;
using stopper::SystemCall;

TEST(SystemCalls, AreParsed) {
  const auto call = parse_call("232 0x5 0x7ffd 0x1 0xffffffff 0x0 0x8 0x7ffe 0x7fff\n");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->number, SYS_epoll_wait);
  EXPECT_EQ(call->arguments[0], 5u);
  EXPECT_EQ(call->arguments[3], 0xffffffffu);
  for (const char* none : {"running\n", "-1 0x7ffe 0x7fff\n", "", "17", "17 0x1 frogs"})
    EXPECT_FALSE(parse_call(none)) << none;
}

TEST(SystemCalls, ThatWouldReturnEarlyAreObstacles) {
  EXPECT_EQ(obstacle_in({SYS_write, {}}), Reached::kBusyCall);
  EXPECT_EQ(obstacle_in({SYS_sendmsg, {}}), Reached::kBusyCall);
  EXPECT_EQ(obstacle_in({SYS_close, {}}), Reached::kBusyCall);
  EXPECT_EQ(obstacle_in({SYS_recvfrom, {3, 0, 8, MSG_WAITALL}}), Reached::kBusyCall);
  EXPECT_EQ(obstacle_in({SYS_recvfrom, {3, 0, 8, 0}}), Reached::kNot);
  EXPECT_EQ(obstacle_in({SYS_recvmsg, {3, 0, MSG_WAITALL}}), Reached::kBusyCall);
  EXPECT_EQ(obstacle_in({SYS_recvmsg, {3, MSG_WAITALL, 0}}), Reached::kNot);
  EXPECT_EQ(obstacle_in({SYS_vfork, {}}), Reached::kVfork);
  EXPECT_EQ(obstacle_in({SYS_futex, {}}), Reached::kNot);
  EXPECT_EQ(obstacle_in({SYS_read, {}}), Reached::kNot);
}

// A second close(2) could close another file's descriptor.
TEST(SystemCalls, ThatMayNotBeRepeatedAreNot) {
  for (const auto number : {SYS_epoll_wait, SYS_recvfrom, SYS_rt_sigtimedwait, SYS_semop})
    EXPECT_TRUE(may_begin_again(number));
  for (const auto number : {SYS_close, SYS_write, SYS_sendto, SYS_execve, SYS_nanosleep})
    EXPECT_FALSE(may_begin_again(number));
}

TEST_F(Stoppers, HoldAllThreadsButOne) {
  ASSERT_TRUE(counts_again());
  EXPECT_TRUE(all_stand_still());
  EXPECT_TRUE(counts_again());
}

TEST_F(Stoppers, HoldAgainAtOnce) {
  uint32_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const auto answer = hold();
    ASSERT_EQ(answer.reached, Reached::kNot) << i;
    EXPECT_NE(answer.serial, last);
    last = answer.serial;
    let_go(answer.serial);
  }
}

TEST_F(Stoppers, LetGoAfterAWhile) {
  const auto begun = base::Clock::steady().now();
  const auto answer = hold();
  ASSERT_EQ(answer.reached, Reached::kNot);
  const uint32_t over_word = ipc::hold_word(HoldPhase::kOver, answer.serial);
  EXPECT_TRUE(run_until([&] { return words.state == over_word; }));
  EXPECT_GE(base::Clock::steady().now() - begun, std::chrono::milliseconds(150));
  EXPECT_TRUE(counts_again());
}

// Sooner than after the longest time of a hold; on a busy machine in one of some tries.
TEST_F(Stoppers, LetGoOfWhoRests) {
  bool sooner = false;
  for (int i = 0; i < 20 && !sooner; ++i) {
    const auto begun = base::Clock::steady().now();
    const auto answer = hold();
    ASSERT_EQ(answer.reached, Reached::kNot);
    ASSERT_EQ(words.rest, 1u) << "says that it knows of rests";
    words.rest = 2;
    const uint32_t over_word = ipc::hold_word(HoldPhase::kOver, answer.serial);
    EXPECT_TRUE(run_until([&] { return words.state == over_word; }));
    sooner = base::Clock::steady().now() - begun < std::chrono::milliseconds(150);
  }
  EXPECT_TRUE(sooner);
  EXPECT_TRUE(counts_again());
}

// A hold during an exchange of pages lasts longer, but has a limit, and the program can tell that
// it ended.
TEST_F(Stoppers, LetGoLaterInTheMiddleOfAnExchange) {
  const auto answer = hold();
  ASSERT_EQ(answer.reached, Reached::kNot);
  const uint32_t owner = words.owner;
  words.state = ipc::hold_word(HoldPhase::kExchanging, answer.serial);
  ::usleep(400'000);
  const bool counted_on = counts();
  EXPECT_FALSE(counted_on && words.owner == owner);  // on a busy machine the hold may have ended
  ::usleep(1'200'000);
  EXPECT_NE(words.owner, owner);
  EXPECT_TRUE(counts_again());
}

TEST_F(Stoppers, TellBeforeTheyDie) {
  const auto answer = hold();
  ASSERT_EQ(answer.reached, Reached::kNot);
  const uint32_t owner = words.owner;
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  pid_t child = 0, last = 0;
  while (children >> child) last = child;
  if (last == 0) {
    let_go(answer.serial);
    GTEST_SKIP() << "the kernel does not list children";
  }
  words.state = ipc::hold_word(HoldPhase::kExchanging, answer.serial);
  const uint64_t before = counted;
  ::kill(last, SIGKILL);
  while (counted == before) {
  }
  EXPECT_NE(words.owner, owner);
  EXPECT_TRUE(run_until([this] { return died; }));
  EXPECT_EQ(hold().reached, Reached::kRefused);
  ::waitpid(last, nullptr, 0);
}

TEST_F(Stoppers, TakeABoundedNumberOfOrders) {
  rdma::Peer another = self.peer;
  std::vector<Stopper::Ticket> tickets;
  unsigned done = 0, refused = 0;
  for (unsigned i = 0; i < Stopper::Account::kUnfinished + 3; ++i) {
    another.pid = self.peer.pid + 1 + static_cast<pid_t>(i);
    tickets.push_back(stopper->hold(account, {another, 1, self.pidfd.get(), arena.get()}, *loop,
                                    [&](Stopper::Answer answer) {
                                      ++done;
                                      if (answer.reached == Reached::kRefused) ++refused;
                                    }));
  }
  EXPECT_TRUE(run_until([&] { return done == tickets.size(); }));
  EXPECT_EQ(refused, 3u);
  EXPECT_EQ(hold().reached, Reached::kNot);
}

// Fills the socket so that the stopper cannot answer. On a busy machine an order may not fit
// either, or a thread may stop too late; then the test repeats all of it.
TEST_F(Stoppers, HoldNobodyWhileTheDaemonDoesNotRead) {
  const auto thread = static_cast<uint32_t>(::syscall(SYS_gettid));
  const auto held = [this] { return ipc::hold_phase(words.state) == HoldPhase::kHeld; };
  rdma::Peer another = self.peer;
  std::vector<Stopper::AccountRef> accounts;
  std::vector<Stopper::Ticket> tickets;
  unsigned came = 0;
  const auto ask = [&](const rdma::Peer& peer) {
    tickets.push_back(stopper->hold(accounts.back(), {peer, thread, self.pidfd.get(), arena.get()},
                                    *loop, [&](Stopper::Answer) { ++came; }));
  };
  for (int round = 0; round < 10 && !held(); ++round) {
    for (unsigned i = 0; i < 1000; ++i) {
      if (i % Stopper::Account::kUnfinished == 0)
        accounts.push_back(std::make_shared<Stopper::Account>(stopper.get()));
      another.pid = self.peer.pid + 1 + static_cast<pid_t>(i);
      ask(another);
      ::usleep(500);  // so that it arrives before the next
    }
    accounts.push_back(std::make_shared<Stopper::Account>(stopper.get()));
    ask(self.peer);
    for (int i = 0; i < 200 && !held(); ++i) ::usleep(10'000);
    EXPECT_TRUE(counts_again());
    EXPECT_TRUE(run_until([&] { return came == tickets.size(); }));
  }
  EXPECT_TRUE(held());
}

TEST_F(Stoppers, LeaveAloneWhoIsAnother) {
  self.peer.start_time += 1;
  EXPECT_EQ(hold().reached, Reached::kOther);
  EXPECT_TRUE(counts_again());
}

// A thread id of another process: no thread is stopped.
TEST_F(Stoppers, LeaveAllAloneIfTheThreadIsNone) {
  Stopper::Answer got;
  bool came = false;
  const auto ticket = stopper->hold(account, {self.peer, 1, self.pidfd.get(), arena.get()}, *loop,
                                    [&](Stopper::Answer answer) {
                                      got = answer;
                                      came = true;
                                    });
  EXPECT_TRUE(run_until([&] { return came; }));
  EXPECT_EQ(got.reached, Reached::kOther);
  EXPECT_TRUE(counts_again());
}

TEST_F(Stoppers, LeaveAloneAThreadThatSends) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::atomic<ssize_t> sent = 0;
  std::vector<char> much(4u << 20);
  std::thread sender([&] { sent = ::send(ends[0], much.data(), much.size(), 0); });
  ::usleep(100'000);
  EXPECT_EQ(hold().reached, Reached::kBusyCall);
  EXPECT_EQ(sent, 0);
  std::vector<char> taken(much.size());
  ASSERT_EQ(::recv(ends[1], taken.data(), taken.size(), MSG_WAITALL),
            static_cast<ssize_t>(taken.size()));
  sender.join();
  EXPECT_EQ(sent, static_cast<ssize_t>(much.size()));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace vrdma::vrdmad
