#include "vrdmad/broker/earlier_workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "tests/unit/vrdmad/admin/fixture.h"
#include "tests/unit/vrdmad/broker/pidfds.h"

namespace vrdma::vrdmad {
namespace {

using base::Fd;

class EarlierWorkers : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may change its root directory";
  }
  // A process with that root directory, in which `work` runs.
  template <class Work>
  static pid_t in(const std::string& root, Work work) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::chroot(root.c_str()) != 0 || ::write(ready[1], "", 1) != 1) ::_exit(1);
      work();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  // The signal that has ended it; 0: it lives.
  static int end_of(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, WNOHANG) == pid && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  static Fd open(const TempDir& directory) {
    return Fd(::open(directory.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }

  TempDir root_, other_;
};

TEST_F(EarlierWorkers, have_ended_and_nobody_else) {
  const auto wait = [] { ::pause(); };
  const pid_t mine = in(root_.path(), wait), another = in(other_.path(), wait);
  // Its first thread has ended, another has not.
  const pid_t headless = in(root_.path(), [] {
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);  // pthread_exit(3) would unwind the test
  });
  ASSERT_TRUE(eventually(
      [&] { return word_of("/proc/" + std::to_string(headless) + "/status", "State:") == "Z"; }));
  end_earlier_workers(open(root_), std::chrono::seconds(30));
  EXPECT_EQ(end_of(mine), SIGKILL);
  EXPECT_EQ(end_of(headless), SIGKILL);
  EXPECT_EQ(end_of(another), 0);
  ::kill(another, SIGKILL);
  ::waitpid(another, nullptr, 0);
}

}  // namespace
}  // namespace vrdma::vrdmad
