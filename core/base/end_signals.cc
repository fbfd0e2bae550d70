#include "core/base/end_signals.h"

#include <sys/signalfd.h>

#include <csignal>

namespace vrdma::base {

Result<Fd> catch_end_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Fd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return fail_errno("make a signalfd");
  return fd;
}

}  // namespace vrdma::base
