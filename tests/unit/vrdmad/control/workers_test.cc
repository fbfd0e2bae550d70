#include "vrdmad/control/workers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "core/ipc/socket.h"

namespace vrdma::vrdmad {
namespace {

// Workers that are started and ended by the test.
struct WorkersTest : testing::Test {
  struct Fake final : WorkerEnd {
    explicit Fake(unsigned& alive) : living(alive) { ++living; }
    ~Fake() override { --living; }
    void send(Parcel) override {}
    void leave() override {}
    [[nodiscard]] base::Fd report() const override {
      return its_report.valid() ? its_report.duplicate().value() : base::Fd();
    }
    base::Fd its_report;
    unsigned& living;
  };
  struct Started {
    unsigned slot = 0;
    Workers::Tell tell;
    Workers::Ended ended;
  };

  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  unsigned living = 0;
  bool fails = false;
  std::vector<base::Fd> helpers;  // of the next that starts
  std::vector<Started> starts;
  std::vector<std::string> log;
  Workers workers{
      *loop,
      [this](unsigned slot, const Workers::Tell& tell,
             const Workers::Ended& ended) -> base::Result<Workers::Running> {
        if (fails) return base::fail(ENOMEM, "no memory");
        starts.push_back({slot, tell, ended});
        return Workers::Running{std::make_unique<Fake>(living),
                                base::SharedPage<base::EventLoop::Passes>::make("test").value(),
                                std::move(helpers)};
      },
      {[this](const auto& domain) { log.push_back("started " + domain); },
       [this](const auto& domain, const auto&) { log.push_back("came " + domain); },
       [this](const auto& domain, unsigned slot, Workers::End how) {
         log.push_back((how == Workers::End::kLost ? "lost " : "ended ") + domain + " of slot " +
                       std::to_string(slot));
       },
       [this](const auto& domain, const auto& connections) {
         log.push_back("died " + domain + " with " + std::to_string(connections.size()));
       },
       [this](const auto& domain) { log.push_back("exceeded " + domain); }}};
};

TEST_F(WorkersTest, AreStartedOnceForEachDomain) {
  EXPECT_EQ(workers.find("red"), nullptr);
  const auto red = workers.need("red");
  ASSERT_TRUE(red);
  EXPECT_EQ(workers.need("red").value(), *red);
  EXPECT_NE(workers.need("blue").value(), *red);
  EXPECT_EQ(log, (std::vector<std::string>{"started red", "started blue"}));
  EXPECT_EQ(workers.slot_of("red"), 1u);
  EXPECT_EQ(workers.slot_of("blue"), 2u);
  EXPECT_EQ(workers.longest_passes().size(), 2u);
}

TEST_F(WorkersTest, SayWhyTheyCannotBeStarted) {
  fails = true;
  EXPECT_EQ(workers.need("red").error().message(), "start a worker: no memory");
  EXPECT_EQ(workers.find("red"), nullptr);
  EXPECT_TRUE(log.empty());
}

TEST_F(WorkersTest, AreLackingFromTheFirstFailureToTheNextSuccess) {
  EXPECT_EQ(workers.lack("red"), nullptr);
  fails = true;
  EXPECT_FALSE(workers.need("red"));
  const auto since = workers.lack("red")->since;
  EXPECT_EQ(workers.lack("red")->why, "start a worker: no memory");
  EXPECT_EQ(workers.lack("blue"), nullptr) << "it is another's";
  EXPECT_FALSE(workers.need("red"));
  EXPECT_EQ(workers.lack("red")->since, since);
  fails = false;
  EXPECT_TRUE(workers.need("red"));
  EXPECT_EQ(workers.lack("red"), nullptr);
}

TEST_F(WorkersTest, HaveNoMoreSlotsThanThePagesOfBudgets) {
  for (size_t i = 0; i < Workers::kMost; ++i) ASSERT_TRUE(workers.need("t" + std::to_string(i)));
  EXPECT_EQ(workers.slot_of("t" + std::to_string(Workers::kMost - 1)),
            provisioning::kBudgetSlots - 1);
  EXPECT_EQ(workers.need("red").error().code(), EUSERS);
  starts[7].ended("it has ended");
  EXPECT_TRUE(workers.need("red"));
}

TEST_F(WorkersTest, HaveTheConnectionsOfTheirOwnDomain) {
  ASSERT_TRUE(workers.need("red") && workers.need("blue"));
  workers.add("red", 7);
  EXPECT_TRUE(workers.has("red", 7));
  EXPECT_FALSE(workers.has("blue", 7));
  EXPECT_FALSE(workers.has("green", 7));
  workers.ended("red", 7);
  EXPECT_FALSE(workers.has("red", 7));
}

TEST_F(WorkersTest, TellWhatWasLostWhenTheyDie) {
  ASSERT_TRUE(workers.need("red"));
  workers.add("red", 7);
  workers.add("red", 8);
  log.clear();
  starts[0].tell(Ended{9});
  starts[0].ended("it has ended");
  EXPECT_EQ(log, (std::vector<std::string>{"came red", "lost red of slot 1", "died red with 2"}));
  EXPECT_EQ(living, 0u);
  log.clear();
  starts[0].tell(Ended{7});
  starts[0].ended("it has ended");
  EXPECT_TRUE(log.empty()) << "a worker speaks after its end";
}

TEST_F(WorkersTest, AreNoClientsOfTheHelpersAnyMore) {
  auto [of_helper, of_worker] = ipc::make_socket_pair(SOCK_NONBLOCK).value();
  const base::Fd of_a_program = of_worker.duplicate().value();
  helpers.push_back(std::move(of_worker));
  ASSERT_TRUE(workers.need("red"));
  char byte = 0;
  EXPECT_EQ(::recv(of_helper.get(), &byte, 1, 0), -1);
  starts[0].ended("it has ended");
  EXPECT_EQ(::recv(of_helper.get(), &byte, 1, 0), 0);
}

// The last has a thread that hangs in the memory of a program.
TEST_F(WorkersTest, AreNotReplacedWithoutEndWhileTheyCannotEnd) {
  const pid_t hung = ::fork();
  if (hung == 0) {
    ::pause();
    ::_exit(0);
  }
  const base::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, hung, 0)));
  for (size_t i = 0; i < Workers::kMostEnding; ++i) {
    const auto worker = workers.need("red");
    ASSERT_TRUE(worker) << worker.error().message();
    static_cast<Fake*>(*worker)->its_report = pidfd.duplicate().value();
    starts.back().ended("it has ended");
  }
  EXPECT_EQ(workers.need("red").error().code(), EBUSY);
  EXPECT_TRUE(workers.need("blue"));
  ::kill(hung, SIGKILL);
  ::waitpid(hung, nullptr, 0);
  loop->post([this] { loop->stop(); });
  loop->run();
  EXPECT_TRUE(workers.need("red"));
}

TEST_F(WorkersTest, TellThatTheyExceededTheirMemory) {
  for (const bool exceeded : {false, true}) {
    auto [report, of_broker] = ipc::make_socket_pair().value();
    static_cast<Fake*>(workers.need("red").value())->its_report = std::move(report);
    starts.back().ended("it has ended");
    log.clear();
    const uint64_t limit = 256 << 20;
    if (exceeded) {
      ASSERT_TRUE(ipc::send_message(of_broker.get(), &limit, sizeof limit));
    }
    of_broker = base::Fd();
    loop->post([this] { loop->stop(); });
    loop->run();
    EXPECT_EQ(log,
              exceeded ? std::vector<std::string>{"exceeded red"} : std::vector<std::string>{});
  }
}

TEST_F(WorkersTest, CrashOnce) {
  ASSERT_TRUE(workers.need("red"));
  EXPECT_TRUE(workers.crashes("red"));
  EXPECT_FALSE(workers.crashes("red")) << "it reports what it likes";
  starts[0].ended("it has ended");
  ASSERT_TRUE(workers.need("red"));
  EXPECT_TRUE(workers.crashes("red")) << "another worker";
}

TEST_F(WorkersTest, UseTheSlotsOfThoseThatHaveEnded) {
  ASSERT_TRUE(workers.need("red") && workers.need("blue"));
  starts[0].ended("it has ended");
  ASSERT_TRUE(workers.need("green"));
  EXPECT_EQ(workers.slot_of("green"), 1u);
  starts[0].ended("again");
  EXPECT_NE(workers.find("green"), nullptr);
}

}  // namespace
}  // namespace vrdma::vrdmad
