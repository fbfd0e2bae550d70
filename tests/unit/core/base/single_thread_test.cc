#include "core/base/single_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace vrdma::base {
namespace {

// The answers of a new process: before, during and after its first thread.
int answers() {
  if (!is_single_threaded()) return 1;
  bool inside = true;
  std::thread([&] { inside = is_single_threaded(); }).join();
  if (inside) return 2;
  return 0;
}

TEST(SingleThread, IsNoLongerSoOnceThereAreTwo) {
  // Sanitizers and other tests have threads; a child has one, and glibc reports it.
  if (!is_single_threaded()) GTEST_SKIP() << "this process has had threads";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(answers());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace vrdma::base
