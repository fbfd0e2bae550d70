#include "core/base/signals.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace vrdma::base {

bool handlers_restart() {
  constexpr std::array kOwn{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
  const int saved = errno;
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  bool restart = true;
  for (int number = 1; restart && number <= SIGRTMAX; ++number) {
    if (std::find(kOwn.begin(), kOwn.end(), number) != kOwn.end()) continue;
    if (::sigismember(&blocked, number) == 1) continue;
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0) continue;  // reserved by libc; these restart
    const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    restart = !handled || (action.sa_flags & SA_RESTART) != 0;
  }
  errno = saved;
  return restart;
}

}  // namespace vrdma::base
