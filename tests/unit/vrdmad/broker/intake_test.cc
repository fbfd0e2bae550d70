#include "vrdmad/broker/intake.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/mapping.h"
#include "core/ipc/messages.h"
#include "core/ipc/socket.h"
#include "tests/unit/core/base/run_until.h"
#include "tests/unit/vrdmad/broker/fork_helper.h"
#include "tests/unit/vrdmad/broker/slow_sockets.h"
#include "vrdmad/broker/conversation.h"
#include "vrdmad/broker/intake_process.h"

namespace vrdma::vrdmad {
namespace {

using base::Fd;

int open_descriptors() {
  int open = 0;
  for (int fd = 0; fd < 1024; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}

std::unique_ptr<Intake> start_intake() {
  return Intake::attach(
      fork_helper([](Fd socket) { intake::serve(std::move(socket), [](const Fd&) {}); }));
}

struct Intakes : testing::Test {
  std::unique_ptr<Intake> intake = start_intake();
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Intake::AccountRef account = std::make_shared<Intake::Account>(intake.get());
  bool died = false;

  base::EventLoop::Watch watch = intake->watch(*loop, [this] { died = true; }).value();

  bool run_until(const std::function<bool()>& condition) {
    return test::run_until(*loop, condition);
  }
  // The intake's report on a message with these descriptors.
  Intake::Received pass(const std::vector<int>& fds) {
    return pass(fds, [this](auto&&... order) {
      return intake->receive(std::forward<decltype(order)>(order)...);
    });
  }
  template <class Receive>
  Intake::Received pass(const std::vector<int>& fds, Receive receive) {
    auto [ours, theirs] = connection();
    const uint64_t word = 4711;
    EXPECT_TRUE(ipc::send_message(theirs.get(), &word, sizeof word, fds));
    EXPECT_EQ(look_at_next(ours.get()), Next::kDescriptors);
    Intake::Received got;
    bool came = false;
    const auto ticket = receive(account, ours, *loop, [&](Intake::Received received) {
      got = std::move(received);
      came = true;
    });
    EXPECT_TRUE(run_until([&] { return came && account->unfinished() == 0; }));
    uint64_t read = 0;
    std::memcpy(&read, got.report.bytes.data(), sizeof read);
    EXPECT_EQ(read, word);
    EXPECT_EQ(got.report.length, sizeof word);
    EXPECT_EQ(got.report.sender.pid, ::getpid());
    EXPECT_EQ(got.report.count, fds.size());
    return got;
  }
};

TEST_F(Intakes, AreNotNeededForPlainMessages) {
  auto [ours, theirs] = connection();
  EXPECT_EQ(look_at_next(ours.get()), Next::kNothing);
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1));
  EXPECT_EQ(look_at_next(ours.get()), Next::kMessage);
}

// The report is posted to the conversation's loop; the conversation may end before the loop runs
// it.
TEST_F(Intakes, ReportToNoConversationThatHasEnded) {
  const auto other_loop = base::EventLoop::create().value();
  auto [ours, theirs] = connection();
  const ipc::Request request{};
  ASSERT_TRUE(ipc::send_message(theirs.get(), &request, sizeof request, {1}));
  using Talk = Conversation<ipc::Request, ipc::Reply>;
  auto talk = std::make_unique<Talk>(*other_loop, account, std::move(ours), nullptr, 0u, [] {});
  bool heard = false;
  ASSERT_TRUE(talk->hear_by_intake([&](Talk::Heard, const ipc::Request&, Shown) { heard = true; }));
  ASSERT_TRUE(run_until([&] { return account->unfinished() == 0; }));
  talk.reset();
  const auto timer = other_loop->after(std::chrono::milliseconds(10), [&] { other_loop->stop(); });
  other_loop->run();
  EXPECT_FALSE(heard);
}

// Otherwise the conversation would wait forever.
TEST_F(Intakes, AnswerWhenThisProcessHasTooManyOpenFiles) {
  auto [ours, theirs] = connection();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{1, before.rlim_max};
  uint32_t error = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto ticket = intake->receive(
      account, ours, *loop, [&](Intake::Received received) { error = received.report.error; });
  EXPECT_EQ(error, 0u) << "not before receive() returns";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(run_until([&] { return error != 0; }));
  EXPECT_EQ(error, static_cast<uint32_t>(EMFILE));
  EXPECT_EQ(account->unfinished(), 0u);
}

// The kernel reports a reset once, and then continues with the unread messages.
TEST_F(Intakes, TakeNothingFromBehindAReset) {
  auto [ours, theirs] = connection();
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(ours.get(), &byte, 1));
  ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {0}));
  theirs.reset();
  EXPECT_EQ(look_at_next(ours.get()), Next::kError);
  EXPECT_EQ(look_at_next(ours.get()), Next::kDescriptors);
}

TEST_F(Intakes, TakeTheEndForAMessage) {
  auto [ours, theirs] = connection();
  theirs.reset();
  EXPECT_EQ(look_at_next(ours.get()), Next::kMessage);
}

// Peeking neither receives nor loses the descriptors.
TEST_F(Intakes, LookWithoutReceiving) {
  auto [ours, theirs] = connection();
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {0, 1, 2}));
  const int before = open_descriptors();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(look_at_next(ours.get()), Next::kDescriptors);
  EXPECT_EQ(open_descriptors(), before);
  std::vector<Fd> fds;
  char read = 0;
  ASSERT_TRUE(ipc::receive_message(ours.get(), &read, 1, &fds));
  EXPECT_EQ(fds.size(), 3u);
}

// As a hook sends them: a namespace, a pidfd, and what may be neither.
TEST_F(Intakes, PassOnNamespacesAndPidfdsOnlyWhenThatIsOrdered) {
  const Fd netns(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  const Fd other(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  const Fd process(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const Fd sealed = base::make_memfd("test", 4096).value();
  const std::vector<int> all{netns.get(), other.get(), process.get(), pidfd.get(), sealed.get()};
  const auto got = pass(all, [&](auto&&... order) {
    return intake->receive_process(std::forward<decltype(order)>(order)...);
  });
  ASSERT_EQ(got.passed.size(), 2u);
  using intake::Kind;
  const std::array kinds{Kind::kNetns, Kind::kOther, Kind::kOther, Kind::kPidfd, Kind::kOther};
  for (size_t i = 0; i < kinds.size(); ++i)
    EXPECT_EQ(got.report.verdicts[i].kind, kinds[i]) << "descriptor " << i;
  struct stat wanted {
  }, passed{};
  ASSERT_EQ(::fstat(netns.get(), &wanted), 0);
  ASSERT_EQ(::fstat(got.passed[0].get(), &passed), 0);
  EXPECT_EQ(passed.st_ino, wanted.st_ino);
  EXPECT_EQ(got.report.verdicts[0].inode, wanted.st_ino);
  EXPECT_EQ(pass(all).passed.size(), 1u) << "a session may show memory only";
}

TEST_F(Intakes, PassOnMemoryFilesThatAreSealedAsOurs) {
  const Fd sealed = base::make_memfd("test", 4096).value();
  const Fd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Fd reading(pipe[0]), writing(pipe[1]);
  const auto got = pass({sealed.get(), open.get(), reading.get()});
  ASSERT_EQ(got.passed.size(), 1u);
  struct stat wanted {};
  struct stat status {};
  ::fstat(sealed.get(), &wanted);
  ::fstat(got.passed[0].get(), &status);
  EXPECT_EQ(status.st_ino, wanted.st_ino);
  EXPECT_EQ(got.report.verdicts[0].kind, intake::Kind::kMemory);
  EXPECT_EQ(got.report.verdicts[0].passed, 1u);
  EXPECT_EQ(got.report.verdicts[0].inode, wanted.st_ino);
  EXPECT_EQ(got.report.verdicts[1].kind, intake::Kind::kMemory);
  EXPECT_EQ(got.report.verdicts[1].passed, 0u);
  EXPECT_EQ(got.report.verdicts[2].kind, intake::Kind::kOther);
}

TEST_F(Intakes, KnowPacketSocketsAndTheirNamespace) {
  const Fd packets(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!packets.valid()) GTEST_SKIP() << "no packet sockets here";
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  ASSERT_EQ(::getsockopt(packets.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size), 0);
  const auto got = pass({packets.get()});
  EXPECT_EQ(got.report.verdicts[0].kind, intake::Kind::kPacketSocket);
  EXPECT_EQ(got.report.verdicts[0].netns_cookie, cookie);
  EXPECT_TRUE(got.passed.empty());
}

// A message whose descriptors are slow to close is reported at once, and so are other accounts'
// messages.
TEST_F(Intakes, LetNobodyElseWaitForACloseThatLasts) {
  std::vector<Fd> peers(2 * intake::kThreadsPerAccount);
  std::vector<Intake::Ticket> tickets;
  std::vector<Fd> kept;
  constexpr int kThreads = intake::kThreadsPerAccount;
  int told = 0;
  for (Fd& peer : peers) {
    auto [ours, theirs] = connection();
    {
      const Fd socket = lingering_socket(60, &peer);
      const char byte = 1;
      ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {socket.get()}));
    }
    tickets.push_back(intake->receive(account, ours, *loop, [&](Intake::Received) { ++told; }));
    kept.push_back(std::move(ours));
  }
  EXPECT_TRUE(run_until([&] { return told == kThreads; }));
  const auto neighbour = std::make_shared<Intake::Account>(intake.get());
  auto [ours, theirs] = connection();
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {0}));
  bool answered = false;
  const auto ticket =
      intake->receive(neighbour, ours, *loop, [&](Intake::Received) { answered = true; });
  EXPECT_TRUE(run_until([&] { return answered && neighbour->unfinished() == 0; }));
  EXPECT_EQ(told, kThreads);
  EXPECT_EQ(account->unfinished(), peers.size());
  for (Fd& peer : peers) peer.reset();  // a reset ends the close
  EXPECT_TRUE(run_until([&] { return account->unfinished() == 0; }));
  EXPECT_EQ(told, 2 * kThreads);
}

// Also if the message with the descriptor is never read.
TEST_F(Intakes, CloseConnectionsWithSomethingUnread) {
  std::vector<Fd> peers(Intake::Account::kCrowded);
  const auto begun = std::chrono::steady_clock::now();
  for (Fd& peer : peers) {
    EXPECT_FALSE(account->crowded());
    auto [ours, theirs] = connection();
    Fd socket = lingering_socket(60, &peer);
    const char byte = 1;
    ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {socket.get()}));
    socket.reset();  // before the intake does: the last close waits
    theirs.reset();
    close_connection(account, std::move(ours));
  }
  EXPECT_TRUE(account->crowded());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
  peers.clear();
  EXPECT_TRUE(run_until([&] { return account->unfinished() == 0; }));
}

TEST_F(Intakes, AreNotNeededForConnectionsThatWereRead) {
  auto [ours, theirs] = connection();
  close_connection(account, std::move(ours));
  EXPECT_EQ(account->unfinished(), 0u);
  auto [again, other] = connection();
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(again.get(), &byte, 1));  // resets the connection
  other.reset();
  close_connection(account, std::move(again));
  EXPECT_EQ(account->unfinished(), 0u);
}

TEST_F(Intakes, AreMissed) {
  std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  pid_t child = 0, last = 0;
  while (children >> child) last = child;
  if (last == 0) GTEST_SKIP() << "the kernel does not list children";
  EXPECT_FALSE(died);
  ::kill(last, SIGKILL);
  EXPECT_TRUE(run_until([&] { return died; }));
}

// The listener of a vdevice and its sessions may belong to different processes.
TEST_F(Intakes, CountInASharedWord) {
  const auto word = std::make_shared<Intake::Account::Count>(0);
  const auto sessions = std::make_shared<Intake::Account>(intake.get(), word);
  const auto listener = std::make_shared<Intake::Account>(intake.get(), word);
  std::vector<Fd> peers(Intake::Account::kCrowded);
  for (Fd& peer : peers) {
    EXPECT_FALSE(listener->crowded());
    intake->close(sessions, lingering_socket(60, &peer));
  }
  EXPECT_EQ(*word, Intake::Account::kCrowded);
  EXPECT_TRUE(listener->crowded());
  EXPECT_FALSE(account->crowded());
  *word = 2;  // as if its memory belonged to another process
  EXPECT_FALSE(listener->crowded());
  peers.clear();
  EXPECT_TRUE(run_until([&] { return sessions.use_count() == 1; }));
  EXPECT_EQ(*word, 0u);
}

TEST_F(Intakes, SayNothingWithoutATicket) {
  auto [ours, theirs] = connection();
  const Fd memory = base::make_memfd("test", 4096).value();
  const char byte = 1;
  ASSERT_TRUE(ipc::send_message(theirs.get(), &byte, 1, {memory.get()}));
  const int before = open_descriptors();
  bool told = false;
  {
    const auto ticket =
        intake->receive(account, ours, *loop, [&](Intake::Received) { told = true; });
  }
  EXPECT_TRUE(run_until([&] { return account->unfinished() == 0; }));
  EXPECT_FALSE(told);
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace vrdma::vrdmad
