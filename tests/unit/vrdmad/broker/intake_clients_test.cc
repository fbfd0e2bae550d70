// Several clients of one intake process. The test is control and all the others; some of them speak
// the protocol themselves, so that they can break it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "core/ipc/socket.h"
#include "tests/unit/core/base/run_until.h"
#include "tests/unit/vrdmad/broker/fork_helper.h"
#include "tests/unit/vrdmad/broker/slow_sockets.h"
#include "vrdmad/broker/helper_client.h"
#include "vrdmad/broker/intake.h"
#include "vrdmad/broker/intake_process.h"

namespace vrdma::vrdmad {
namespace {

using base::Fd;
using intake::Order;
using intake::Report;
using intake::Stage;
using intake::Task;

TEST(Shares, LeaveSomeForTheNextClient) {
  constexpr unsigned kMost = 12;
  unsigned first = 0, second = 0;
  while (may_have_more(first, first, kMost)) ++first;
  EXPECT_EQ(first, kMost / 2);
  while (may_have_more(second, first + second, kMost)) ++second;
  EXPECT_EQ(second, kMost / 4);
  EXPECT_TRUE(may_have_more(0, kMost, kMost));
  EXPECT_FALSE(may_have_more(1, kMost, kMost));
}

// A client that orders what it likes.
struct Raw {
  Fd socket;

  bool send(const Order& order, const std::vector<int>& fds) const {
    return ipc::send_message(socket.get(), &order, sizeof order, fds).has_value();
  }
  bool close(uint64_t id, uint64_t account, const Fd& subject) const {
    return send({id, account, Task::kClose, 0}, {subject.get()});
  }
  // nullopt: the end, or nothing for ten seconds.
  [[nodiscard]] std::optional<Report> report() const {
    pollfd ready{socket.get(), POLLIN, 0};
    Report report;
    if (::poll(&ready, 1, 10'000) != 1) return std::nullopt;
    if (::recv(socket.get(), &report, sizeof report, 0) != sizeof report) return std::nullopt;
    return report;
  }
};

bool ends(const Fd& socket) {
  pollfd ready{socket.get(), 0, 0};
  return ::poll(&ready, 1, 10'000) == 1 && (ready.revents & POLLHUP) != 0;
}

#ifdef __SANITIZE_THREAD__
constexpr size_t kMainThreads = 2;  // one is the sanitizer's, as soon as there are others
#else
constexpr size_t kMainThreads = 1;
#endif

struct IntakeClients : testing::Test {
  IntakeClients() {
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    for (pid_t child = 0; children >> child;) process = child;
  }
  void SetUp() override {
    if (process == 0) GTEST_SKIP() << "the kernel does not list children";
  }

  static std::unique_ptr<Intake> start() {
    return Intake::attach(
        fork_helper([](Fd socket) { intake::serve(std::move(socket), [](const Fd&) {}); }));
  }
  [[nodiscard]] Raw add() const { return {intake->add_client().value()}; }
  // Whether control and a new client are served.
  void expect_service() {
    const auto account = std::make_shared<Intake::Account>(intake.get());
    intake->close(account, Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
    EXPECT_TRUE(run_until([&] { return account->unfinished() == 0; }));
    EXPECT_FALSE(died);
    const Raw client = add();
    const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(client.close(1, 1, null));
    const auto report = client.report();
    EXPECT_TRUE(report && report->id == 1 && report->stage == Stage::kFinished);
  }
  // Sends messages with sockets, whose last descriptors the intake then has: it sleeps meanwhile.
  void send_asleep(const std::function<void()>& send) const {
    ::kill(process, SIGSTOP);
    ::waitpid(process, nullptr, WUNTRACED);
    send();
    ::kill(process, SIGCONT);
  }
  // Hangs all threads of an account.
  void hang(const Raw& client, uint64_t account) {
    send_asleep([&] {
      for (unsigned i = 0; i < intake::kThreadsPerAccount; ++i)
        ASSERT_TRUE(client.close(i, account, lingering_socket(60, &peers.emplace_back())));
    });
  }
  [[nodiscard]] size_t threads() const {
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process) + "/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
  }
  bool run_until(const std::function<bool()>& condition) {
    return test::run_until(*loop, condition);
  }

  std::unique_ptr<Intake> intake = start();
  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  bool died = false;
  std::optional<base::EventLoop::Watch> watch =
      intake->watch(*loop, [this] { died = true; }).value();
  pid_t process = 0;
  std::vector<Fd> peers;  // what the intake's threads wait for
};

TEST_F(IntakeClients, AreAttachedLikeControl) {
  const auto other = Intake::attach(intake->add_client().value());
  bool ended = false;
  const auto its = other->watch(*loop, [&] { ended = true; }).value();
  const auto account = std::make_shared<Intake::Account>(other.get());
  auto [ours, theirs] = connection();
  const uint64_t word = 4711;
  ASSERT_TRUE(ipc::send_message(theirs.get(), &word, sizeof word, {0}));
  uint64_t read = 0;
  const auto ticket = other->receive(account, ours, *loop, [&](Intake::Received received) {
    std::memcpy(&read, received.report.bytes.data(), sizeof read);
  });
  EXPECT_TRUE(run_until([&] { return read == word && account->unfinished() == 0; }));
  EXPECT_FALSE(ended);
}

// Orders and accounts of different clients have the same numbers.
TEST_F(IntakeClients, ShareNoNumbers) {
  const std::vector<Raw> clients = [&] {
    std::vector<Raw> made;
    for (int i = 0; i < 3; ++i) made.push_back(add());
    return made;
  }();
  hang(clients[0], 1);
  for (uint64_t round = 0; round < 4; ++round) {
    for (size_t i = 1; i < clients.size(); ++i) {
      auto [ours, theirs] = connection();
      const uint64_t word = 10 * round + i;
      ASSERT_TRUE(ipc::send_message(theirs.get(), &word, sizeof word, {0}));
      ASSERT_TRUE(clients[i].send({round, 1, Task::kReceive, 0}, {ours.get()}));
    }
    for (size_t i = 1; i < clients.size(); ++i) {
      const auto received = clients[i].report();
      ASSERT_TRUE(received && received->stage == Stage::kReceived);
      uint64_t word = 0;
      std::memcpy(&word, received->bytes.data(), sizeof word);
      EXPECT_EQ(word, 10 * round + i);
      EXPECT_EQ(received->id, round);
      const auto finished = clients[i].report();
      EXPECT_TRUE(finished && finished->id == round && finished->stage == Stage::kFinished);
    }
  }
}

// A client whose queue is full is not read.
TEST_F(IntakeClients, WaitForTheirOwnQueue) {
  const Raw greedy = add();
  hang(greedy, 1);
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::fcntl(greedy.socket.get(), F_SETFL, O_NONBLOCK);
  constexpr unsigned kMany = 20'000;
  unsigned sent = intake::kThreadsPerAccount;
  while (sent < kMany) {
    if (greedy.close(sent, 1, null))
      ++sent;
    else if (pollfd room{greedy.socket.get(), POLLOUT, 0}; ::poll(&room, 1, 500) == 0)
      break;
  }
  EXPECT_GE(sent, kMostQueued);
  EXPECT_LT(sent, kMany);
  expect_service();
  peers.clear();
  ::fcntl(greedy.socket.get(), F_SETFL, 0);
  for (unsigned i = 0; i < sent; ++i) ASSERT_TRUE(greedy.report()) << i;
}

// The threads of a client that does not read its reports wait until it does.
TEST_F(IntakeClients, HaveAShareOfTheThreads) {
  constexpr unsigned kOrders = intake::kThreads / 2 + 200;
  std::optional<Raw> deaf = add();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  constexpr timeval kPatience{1, 0};
  ::setsockopt(deaf->socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  for (unsigned i = 0; i < 2 * kOrders && deaf->close(i, i, null); ++i) {
  }
  EXPECT_TRUE(run_until([&] { return threads() == kMainThreads + intake::kThreads / 2; }))
      << threads();
  expect_service();
  deaf.reset();
  EXPECT_TRUE(run_until([&] { return threads() == kMainThreads; })) << threads();
}

// Connections that no thread can close yet are shut down, in the queue and in the socket.
TEST_F(IntakeClients, LeaveNoConnection) {
  std::optional<Raw> client = add();
  hang(*client, 1);
  ::fcntl(client->socket.get(), F_SETFL, O_NONBLOCK);
  std::vector<Fd> theirs;
  for (;;) {
    auto [ours, other] = connection();
    if (client->close(theirs.size(), 1, ours))
      theirs.push_back(std::move(other));
    else if (pollfd room{client->socket.get(), POLLOUT, 0}; ::poll(&room, 1, 500) == 0)
      break;
  }
  EXPECT_GT(theirs.size(), kMostQueued);
  client.reset();
  for (const Fd& socket : theirs) EXPECT_TRUE(ends(socket));
  expect_service();
  peers.clear();
  EXPECT_TRUE(run_until([&] { return threads() == kMainThreads; }));
}

// What came with the nonsense may hang at its close, and is shut down too.
TEST_F(IntakeClients, EndByNonsense) {
  const Order good{1, 1, Task::kClose, 0};
  struct Nonsense {
    const char* name;
    Order order;
    size_t length = sizeof(Order);
    unsigned sockets = 1;
  };
  for (const auto& each : {Nonsense{"short", good, sizeof good - 1}, Nonsense{"empty", good, 0},
                           Nonsense{"without a descriptor", good, sizeof good, 0},
                           Nonsense{"with two descriptors", good, sizeof good, 2},
                           Nonsense{"another task", {1, 1, static_cast<Task>(17), 0}},
                           Nonsense{"a new client", {1, 1, Task::kAddClient, 0}}}) {
    SCOPED_TRACE(each.name);
    const Raw client = add();
    send_asleep([&] {
      std::vector<Fd> sent;
      std::vector<int> numbers;
      for (unsigned i = 0; i < each.sockets; ++i) {
        sent.push_back(lingering_socket(60, &peers.emplace_back()));
        numbers.push_back(sent.back().get());
      }
      ASSERT_TRUE(ipc::send_message(client.socket.get(), &each.order, each.length, numbers));
    });
    EXPECT_TRUE(ends(client.socket));
    expect_service();
  }
}

TEST_F(IntakeClients, AddNoOthers) {
  const Raw client = add();
  auto [ours, theirs] = connection();
  ASSERT_TRUE(client.send({0, 0, Task::kAddClient, 0}, {theirs.get()}));
  theirs.reset();
  EXPECT_TRUE(ends(ours));
  EXPECT_TRUE(ends(client.socket));
  expect_service();
}

TEST_F(IntakeClients, EndWithControl) {
  const Raw client = add();
  auto [ours, theirs] = connection();
  hang(client, 1);
  ASSERT_TRUE(client.close(9, 1, ours));
  ours.reset();
  watch.reset();
  intake.reset();
  EXPECT_TRUE(ends(client.socket));
  EXPECT_TRUE(ends(theirs));
}

}  // namespace
}  // namespace vrdma::vrdmad
