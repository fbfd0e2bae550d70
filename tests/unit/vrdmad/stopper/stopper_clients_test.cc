// Several clients of one stopper process. The test is control and all the others; some of them
// speak the protocol themselves, so that they can break it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "core/ipc/socket.h"
#include "tests/unit/vrdmad/stopper/stoppers.h"
#include "vrdmad/stopper/process.h"
#include "vrdmad/stopper/wire.h"

namespace vrdma::vrdmad {
namespace {

using base::Fd;
using ipc::HoldPhase;
using ipc::Reached;
using stopper::Order;
using stopper::Report;
using stopper::Stage;
using stopper::Task;

struct StopperClients : Stoppers {
  [[nodiscard]] Fd add() const { return stopper->add_client().value(); }
  [[nodiscard]] Order order(uint64_t id, uint64_t its_account) const {
    Order order;
    order.id = id;
    order.account = its_account;
    order.thread = static_cast<uint32_t>(::syscall(SYS_gettid));
    order.peer = self.peer;
    return order;
  }
  // The order is for a process that does not exist.
  [[nodiscard]] Order vain_order(uint64_t id, uint64_t its_account) const {
    Order vain = order(id, its_account);
    vain.peer.start_time += 1;
    return vain;
  }
  [[nodiscard]] bool send(const Fd& client, const Order& order) const {
    return ipc::send_message(client.get(), &order, sizeof order, {self.pidfd.get(), arena.get()})
        .has_value();
  }
  // nullopt: the end, or nothing for ten seconds.
  static std::optional<Report> report(const Fd& client) {
    pollfd ready{client.get(), POLLIN, 0};
    Report report;
    if (::poll(&ready, 1, 10'000) != 1) return std::nullopt;
    if (::recv(client.get(), &report, sizeof report, 0) != sizeof report) return std::nullopt;
    return report;
  }
  static bool ends(const Fd& socket) {
    pollfd ready{socket.get(), 0, 0};
    return ::poll(&ready, 1, 10'000) == 1 && (ready.revents & POLLHUP) != 0;
  }
  void expect_service() {
    EXPECT_TRUE(all_stand_still());
    EXPECT_FALSE(died);
  }
};

TEST_F(StopperClients, HoldLikeControl) {
  const auto other = Stopper::attach(add());
  bool ended = false;
  const auto its = other->watch(*loop, [&] { ended = true; }).value();
  const auto controls = std::exchange(account, std::make_shared<Stopper::Account>(other.get()));
  EXPECT_TRUE(all_stand_still());
  account = controls;
  EXPECT_TRUE(all_stand_still());
  EXPECT_TRUE(counts_again());
  EXPECT_FALSE(ended);
}

// Orders of different clients have the same numbers.
TEST_F(StopperClients, ShareNoNumbers) {
  const Fd first = add(), second = add();
  for (uint64_t id = 0; id < 8; ++id) {
    Order vain = vain_order(id, 1);
    ASSERT_TRUE(send(first, vain));
    ASSERT_TRUE(send(second, vain));
    for (const Fd* client : {&first, &second}) {
      for (const Stage stage : {Stage::kAnswered, Stage::kFinished}) {
        const auto got = report(*client);
        ASSERT_TRUE(got);
        EXPECT_EQ(got->id, id);
        EXPECT_EQ(got->stage, stage);
      }
    }
  }
}

TEST_F(StopperClients, HoldOnWhenTheyHaveEnded) {
  for (int round = 0; round < 20; ++round) {
    std::optional<Fd> client = add();
    ASSERT_TRUE(send(*client, order(1, 1)));
    const auto answer = report(*client);
    ASSERT_TRUE(answer);
    if (answer->reached == Reached::kDeadline) continue;
    ASSERT_EQ(answer->reached, Reached::kNot);
    client.reset();
    ::usleep(20'000);
    const bool held = words.state == ipc::hold_word(HoldPhase::kHeld, answer->serial);
    const uint32_t over_word = ipc::hold_word(HoldPhase::kOver, answer->serial);
    EXPECT_TRUE(run_until([&] { return words.state == over_word; }));
    EXPECT_TRUE(counts_again());
    if (held) return expect_service();  // otherwise the machine is busy
  }
  FAIL() << "no hold outlived its client";
}

// The threads of a client that reads nothing wait until it does.
TEST_F(StopperClients, DelayNoOther) {
  const Fd deaf = add();
  ::fcntl(deaf.get(), F_SETFL, O_NONBLOCK);
  constexpr unsigned kMany = 20'000;
  unsigned sent = 0;
  while (sent < kMany) {
    if (send(deaf, vain_order(sent, sent)))
      ++sent;
    else if (pollfd room{deaf.get(), POLLOUT, 0}; ::poll(&room, 1, 500) == 0)
      break;
  }
  EXPECT_LT(sent, kMany);
  expect_service();
  const Fd other = add();
  ASSERT_TRUE(send(other, vain_order(1, 1)));
  const auto answer = report(other);
  EXPECT_TRUE(answer && answer->reached == Reached::kOther);
  ::fcntl(deaf.get(), F_SETFL, 0);
  for (unsigned i = 0; i < 2 * sent; ++i) ASSERT_TRUE(report(deaf)) << i;
}

// Whatever accounts they claim to have. Control limits its accounts itself. On a busy machine the
// stopper may not get as much time as comes back; then no order is refused, and the bound holds.
TEST_F(StopperClients, HaveABoundedTime) {
  constexpr unsigned kAtOnce = 32;
  constexpr auto kEnough = std::chrono::seconds(20);
  constexpr uint64_t kOfAnOrder = 20'000'000;  // more than any takes
  const Fd client = add();
  bool refused = false;
  uint64_t spent = 0;
  const auto begun = base::Clock::steady().now();
  for (unsigned i = 0; !refused && base::Clock::steady().now() - begun < kEnough; i += kAtOnce) {
    for (unsigned j = 0; j < kAtOnce; ++j) ASSERT_TRUE(send(client, vain_order(i + j, i + j)));
    for (unsigned j = 0; j < 2 * kAtOnce; ++j) {
      const auto came = report(client);
      ASSERT_TRUE(came);
      refused = refused || came->reached == Reached::kRefused;
      spent += came->processor_ns;
    }
  }
  const std::chrono::duration<double> lasted = base::Clock::steady().now() - begun;
  EXPECT_LE(static_cast<double>(spent), stopper::kSavedUp + kAtOnce * kOfAnOrder +
                                            lasted.count() * stopper::kNanosecondsASecond);
  EXPECT_TRUE(!refused || spent >= stopper::kSavedUp);
  expect_service();
}

// A pidfd of another process that is alive.
TEST_F(StopperClients, ProveWhichProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const Fd another(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const Fd client = add();
  const Order wrong = order(1, 1);
  EXPECT_TRUE(ipc::send_message(client.get(), &wrong, sizeof wrong, {another.get(), arena.get()}));
  const auto answer = report(client);
  EXPECT_TRUE(answer && answer->reached == Reached::kOther);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(StopperClients, EndByNonsense) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Fd reading(pipe[0]), writing(pipe[1]);
  const Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  const Fd empty = base::make_memfd("test", 0).value();
  const int pidfd = self.pidfd.get(), memory = arena.get();
  const Order good = order(1, 1);
  Order odd = good, add_client = good;
  odd.task = static_cast<Task>(17);
  add_client.task = Task::kAddClient;
  struct Nonsense {
    const char* name;
    Order order;
    size_t length;
    std::vector<int> fds;
  };
  for (const auto& each :
       {Nonsense{"short", good, sizeof good - 1, {pidfd, memory}}, Nonsense{"empty", good, 0, {}},
        Nonsense{"without descriptors", good, sizeof good, {}},
        Nonsense{"with a descriptor too many", good, sizeof good, {pidfd, memory, memory}},
        Nonsense{"another task", odd, sizeof odd, {pidfd, memory}},
        Nonsense{"a new client", add_client, sizeof add_client, {reading.get()}},
        Nonsense{"no pidfd", good, sizeof good, {reading.get(), memory}},
        Nonsense{"no memory", good, sizeof good, {pidfd, reading.get()}},
        Nonsense{"memory that may shrink", good, sizeof good, {pidfd, unsealed.get()}},
        Nonsense{"no words", good, sizeof good, {pidfd, empty.get()}}}) {
    SCOPED_TRACE(each.name);
    const Fd client = add();
    ASSERT_TRUE(ipc::send_message(client.get(), &each.order, each.length, each.fds));
    EXPECT_TRUE(ends(client));
  }
  expect_service();
}

TEST_F(StopperClients, AddNoOthers) {
  const Fd client = add();
  auto [ours, theirs] = ipc::make_socket_pair().value();
  Order add_client;
  add_client.task = Task::kAddClient;
  ASSERT_TRUE(ipc::send_message(client.get(), &add_client, sizeof add_client, {theirs.get()}));
  theirs.reset();
  EXPECT_TRUE(ends(ours));
  EXPECT_TRUE(ends(client));
  expect_service();
}

TEST_F(StopperClients, EndWithControl) {
  const Fd client = add();
  watch = {};
  account.reset();
  stopper.reset();
  EXPECT_TRUE(ends(client));
}

}  // namespace
}  // namespace vrdma::vrdmad
