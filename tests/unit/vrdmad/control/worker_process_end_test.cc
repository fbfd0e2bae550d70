#include "vrdmad/control/worker_process_end.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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
    worker = ::fork();
    if (worker == 0) {
      ::pause();
      ::_exit(0);
    }
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
  base::Fd of_worker;  // the other end of its socket
};

// A worker that was taken over can send its socket to a program.
TEST(WorkerProcessEnds, LearnTheEndOfAWorkerWhoseSocketAnotherHas) {
  const auto loop = base::EventLoop::create().value();
  const auto broker = std::make_shared<FakeBroker>();
  std::string why;
  const auto ended = [&](const std::string& reason) {
    why = reason;
    loop->stop();
  };
  const auto worker = WorkerProcessEnd::start(
      *loop, *broker, [](const ToControl&) {}, ended, std::make_shared<Intake::Account>(nullptr));
  ASSERT_TRUE(worker) << worker.error().message();
  broker->end();
  const auto limit = loop->after(std::chrono::seconds(20), [&] { loop->stop(); });
  loop->run();
  EXPECT_EQ(why, "it has ended");
}

}  // namespace
}  // namespace vrdma::vrdmad
