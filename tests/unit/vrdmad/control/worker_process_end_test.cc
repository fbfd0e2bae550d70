#include "vrdmad/control/worker_process_end.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "core/ipc/socket.h"

namespace vrdma::vrdmad {
namespace {

// Starts one worker: a process that waits until the test ends it.
struct FakeBroker final : Broker {
  ~FakeBroker() override { end(); }
  Answer serve(const Request& request, Beside* beside) override {
    Answer answer;
    if (request.op != Request::Op::kStartWorker) return answer;
    auto [ours, its] = ipc::make_socket_pair().value();
    std::array<int, 2> closed{};
    EXPECT_EQ(::pipe2(closed.data(), O_CLOEXEC), 0);
    const base::Fd wait(closed[0]);
    base::Fd tell(closed[1]);
    worker = ::fork();
    if (worker == 0) {
      its = {};
      tell = {};
      ::pause();
      ::_exit(0);
    }
    tell = {};
    char none = 0;
    EXPECT_EQ(::read(wait.get(), &none, 1), 0) << "the worker has no socket any more";
    (*beside)[0] = std::move(ours);
    (*beside)[1] = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, worker, 0)));
    of_worker = std::move(its);
    return answer;
  }
  void end() {
    if (worker > 0) {
      ::kill(worker, SIGKILL);
      ::waitpid(worker, nullptr, 0);
    }
    worker = 0;
  }
  pid_t worker = 0;
  base::Fd of_worker;  // the other end of its socket, which it does not have itself
};

struct WorkerProcessEnds : testing::Test {
  // Until the end of the worker is told, at most 20 s.
  void run() {
    const auto limit = loop->after(std::chrono::seconds(20), [&] { loop->stop(); });
    loop->run();
  }
  const std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  const std::shared_ptr<FakeBroker> broker = std::make_shared<FakeBroker>();
  std::string why;
  const std::unique_ptr<WorkerProcessEnd> worker = WorkerProcessEnd::start(
                                                       *loop, *broker, [](const ToControl&) {},
                                                       [this](const std::string& reason) {
                                                         why = reason;
                                                         loop->stop();
                                                       },
                                                       std::make_shared<Intake::Account>(nullptr))
                                                       .value();
};

// A worker that was taken over can send its socket to a program.
TEST_F(WorkerProcessEnds, LearnTheEndOfAWorkerWhoseSocketAnotherHas) {
  broker->end();
  run();
  EXPECT_EQ(why, "it has ended");
}

// A thread that reaches memory ends after the process's sockets.
TEST_F(WorkerProcessEnds, WaitForTheProcessWhenItsSocketHasHungUp) {
  broker->of_worker = {};
  for (int pass = 0; pass < 5; ++pass) loop->step();
  EXPECT_EQ(why, "") << "the process lives";
  broker->end();
  run();
  EXPECT_EQ(why, "it has ended");
}

TEST_F(WorkerProcessEnds, DoNotWaitForAThreadThatHangs) {
  broker->of_worker = {};
  run();
  EXPECT_EQ(why, "it has ended");
  EXPECT_GT(broker->worker, 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
