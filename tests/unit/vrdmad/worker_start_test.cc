// Worker processes of a broker that has only its own privileges and system calls, and those of a
// worker.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/fork_helper.h"
#include "tests/unit/vrdmad/broker/pidfds.h"
#include "tests/unit/vrdmad/broker/worker_program.h"
#include "tests/unit/vrdmad/parent_group.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/broker/broker_serve.h"
#include "vrdmad/privileges.h"
#include "vrdmad/system_calls.h"
#include "vrdmad/worker_system_calls.h"

namespace vrdma::vrdmad {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(VRDMA_COVERAGE)
constexpr bool kFilters = false;
#else
constexpr bool kFilters = true;
#endif

// How a process ends that is confined and makes the call: 0 if the call succeeds, an errno, or
// minus the signal that kills it.
int confined(int (*call)()) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!confine_worker() ? 255 : call() >= 0 ? 0 : errno);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(WorkerFilters, KillAtWhatNoWorkerDoes) {
  if (!kFilters) GTEST_SKIP() << "there are no filters with a sanitizer";
  constexpr int (*kFatal[])() = {
      [] { return ::open("/", O_RDONLY); },
      [] { return ::socket(AF_UNIX, SOCK_STREAM, 0); },
      [] { return ::connect(0, nullptr, 0); },
      [] { return ::execl("/bin/true", "true", nullptr); },
      [] { return static_cast<int>(::syscall(SYS_execveat, -1, "", nullptr, nullptr, 0)); },
      [] { return ::kill(::getppid(), 0); },
      [] { return static_cast<int>(::syscall(SYS_tgkill, ::getppid(), ::getppid(), 0)); },
      [] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)); },
      [] { return static_cast<int>(::syscall(SYS_ptrace, 0, 0, 0, 0)); },
      [] { return static_cast<int>(::syscall(SYS_process_vm_readv, ::getppid(), 0, 0, 0, 0, 0)); },
      [] { return static_cast<int>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); },
      [] { return ::unshare(CLONE_NEWUSER); },
      [] { return ::ioctl(0, TIOCSTI, ""); },
      [] { return ::fcntl(0, F_SETOWN, 1); },
      [] { return ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); },
      [] { return ::chdir("/"); },
      [] {
        return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                       MAP_FAILED
                   ? -1
                   : 0;
      },
  };
  int number = 0;
  for (const auto call : kFatal) EXPECT_EQ(confined(call), -SIGSYS) << "call " << number++;
}

TEST(WorkerFilters, AllowWhatWorkersDo) {
  if (!kFilters) GTEST_SKIP() << "there are no filters with a sanitizer";
  constexpr int (*kAllowed[])() = {
      [] { return ::eventfd(0, EFD_CLOEXEC); },
      [] { return ::fcntl(0, F_DUPFD_CLOEXEC, 3); },
      [] { return ::prctl(PR_SET_NAME, "test", 0, 0, 0); },
      [] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)); },
      [] {
        struct stat status {};
        return ::fstat(0, &status);
      },
      [] { return ::setpriority(PRIO_PROCESS, 0, 10); },
  };
  int number = 0;
  for (const auto call : kAllowed) EXPECT_EQ(confined(call), 0) << "call " << number++;
  EXPECT_EQ(confined([] { return static_cast<int>(::syscall(SYS_clone3, 0, 0)); }), ENOSYS);
  EXPECT_EQ(confined([]() -> int { std::abort(); }), -SIGABRT);
}

// As the daemon starts its broker.
struct ConfinedBrokers : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, as the broker does";
    auto socket = fork_helper([this](base::Fd life) {
      const BrokerPlace place{temp.path(),          64789,  64790, VRDMA_WORKER_PROGRAM,
                              parent.directories(), 200'000};
      broker::serve(std::move(life), place, 1, [](const base::Fd&) {
        if (!keep_broker_privileges() || !confine_broker()) ::_exit(1);
      });
    });
    broker = BrokerProcess::attach(std::move(socket), 1).value_or(nullptr);
    ASSERT_NE(broker, nullptr);
  }
  // The broker removes what it has made in the test's directory when it ends, and so does the test.
  void TearDown() override {
    broker.reset();
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }
  static std::optional<char> order(const WorkerProcess& worker, char what) {
    char byte = 0;
    if (::send(worker.link.get(), &what, 1, MSG_NOSIGNAL) != 1) return std::nullopt;
    if (::recv(worker.link.get(), &byte, 1, 0) != 1) return std::nullopt;
    return byte;
  }
  const TempDir temp;
  const TestParentGroup parent;
  std::shared_ptr<BrokerProcess> broker;
};

TEST_F(ConfinedBrokers, StartConfineAndKillWorkers) {
  auto worker = broker->start_worker();
  ASSERT_TRUE(worker) << worker.error().message();
  const std::string status = "/proc/" + std::to_string(pid_of(worker->pidfd)) + "/status";
  EXPECT_EQ(word_of(status, "Uid:"), "200000");
  EXPECT_EQ(word_of(status, "Gid:"), "200000");
  for (const char* set : {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"})
    EXPECT_EQ(word_of(status, set), "0000000000000000") << set;
  EXPECT_EQ(word_of(status, "Seccomp:"), kFilters ? "2" : "0");
  EXPECT_EQ(order(*worker, worker_program::kWork), 1);
  if (kFilters && order(*worker, worker_program::kConfine) == 1) {
    // Beside the two of the broker.
    EXPECT_EQ(word_of(status, "Seccomp_filters:"), "3");
    EXPECT_EQ(order(*worker, worker_program::kWork), 1) << "it needs more";
    EXPECT_EQ(order(*worker, worker_program::kOpen), std::nullopt) << "it opens a file";
    EXPECT_TRUE(ends(worker->pidfd));
  }
  base::Fd pidfd, link;
  {
    const auto other = broker->start_worker();
    ASSERT_TRUE(other) << other.error().message();
    link = other->link.duplicate().value();  // at whose end it would end itself
    pidfd = other->pidfd.duplicate().value();
  }
  EXPECT_TRUE(ends(pidfd)) << "it is not killed";
}

TEST_F(ConfinedBrokers, GiveEachWorkerAGroup) {
  if (parent.directories().empty()) GTEST_SKIP() << parent.why_none();
  const auto group_of = [](const WorkerProcess& worker) {
    std::ifstream file("/proc/" + std::to_string(pid_of(worker.pidfd)) + "/cgroup");
    std::set<std::string> names;
    for (std::string line; std::getline(file, line);)
      if (const size_t at = line.find("/worker-"); at != std::string::npos)
        names.insert(line.substr(at + 1));
    EXPECT_EQ(names.size(), 1u) << "it is not the same group in each hierarchy";
    return names.empty() ? std::string() : *names.begin();
  };
  const auto one = broker->start_worker();
  ASSERT_TRUE(one) << one.error().message();
  {
    const auto other = broker->start_worker();
    ASSERT_TRUE(other) << other.error().message();
    const std::set<std::string> both{group_of(*one), group_of(*other)};
    EXPECT_EQ(both.size(), 2u);
    EXPECT_EQ(parent.children(), both);
  }
  const std::set<std::string> first{group_of(*one)};
  EXPECT_TRUE(eventually([&] { return parent.children() == first; })) << "one that ended has one";
}

TEST_F(ConfinedBrokers, LeaveNoGroups) {
  if (parent.directories().empty()) GTEST_SKIP() << parent.why_none();
  Broker::Request request;
  request.op = Broker::Request::Op::kStartWorker;
  Broker::Beside beside;
  ASSERT_EQ(broker->serve(request, &beside).error, 0);
  EXPECT_EQ(parent.children().size(), 1u);
  broker.reset();  // at the end of its socket the broker ends
  EXPECT_TRUE(eventually([&] { return parent.children().empty(); }));
  EXPECT_TRUE(ends(beside[1]));
}

TEST_F(ConfinedBrokers, TakeTheirWorkersWithThem) {
  Broker::Request request;
  request.op = Broker::Request::Op::kStartWorker;
  Broker::Beside beside;
  ASSERT_EQ(broker->serve(request, &beside).error, 0);
  broker.reset();  // at the end of its socket the broker ends
  EXPECT_TRUE(ends(beside[1]));
}

}  // namespace
}  // namespace vrdma::vrdmad
