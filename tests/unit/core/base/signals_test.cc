#include "core/base/signals.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <csignal>

namespace vrdma::base {
namespace {

// Installs a handler until the end of the scope.
class Handled {
 public:
  Handled(int number, int flags) : number_(number) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = flags;
    ::sigaction(number_, &action, &before_);
  }
  ~Handled() { ::sigaction(number_, &before_, nullptr); }
  Handled(const Handled&) = delete;
  Handled& operator=(const Handled&) = delete;

 private:
  const int number_;
  struct sigaction before_ {};
};

TEST(Signals, all_handlers_have_to_restart) {
  EXPECT_TRUE(handlers_restart()) << "no handler is installed";
  const Handled first(SIGCHLD, SA_RESTART), last(SIGRTMAX, SA_RESTART | SA_NODEFER);
  EXPECT_TRUE(handlers_restart());
  errno = EXDEV;
  {
    const Handled other(SIGUSR1, 0);
    EXPECT_FALSE(handlers_restart());
  }
  EXPECT_TRUE(handlers_restart());
  const Handled other(SIGRTMAX, 0);
  EXPECT_FALSE(handlers_restart());
  EXPECT_EQ(errno, EXDEV);
}

TEST(Signals, what_cannot_come_in_a_wait_does_not_count) {
  const Handled fault(SIGSEGV, 0), blocked(SIGUSR2, 0);
  EXPECT_FALSE(handlers_restart());
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  EXPECT_TRUE(handlers_restart());
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace
}  // namespace vrdma::base
