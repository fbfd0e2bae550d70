#include "cli/sandbox/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "cli/run_program.h"
#include "cli/sandbox/options.h"

namespace vrdma::cli::sandbox {

Signals::Signals() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : {SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM,
                           SIGWINCH, SIGIO, SIGPWR})
    ::sigaddset(&taken, signal);
  ::sigprocmask(SIG_BLOCK, &taken, &before_);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = base::Fd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

int Signals::next(bool* sent) {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return 0;
  *sent = info.ssi_code <= 0;  // SI_USER and the like; the kernel's are above
  return static_cast<int>(info.ssi_signo);
}

void Signals::restore() const {
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

base::Result<pid_t> start(const Start& what, const Signals& signals) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return base::fail_errno("start " + what.words[0]);
  if (child > 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kFailed);
  if (what.own_session) ::setsid();
  if (what.no_input) {
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
  }
  if (what.output >= 0) {
    ::dup2(what.output, STDOUT_FILENO);
    ::dup2(what.output, STDERR_FILENO);
  }
  for (const auto& [name, value] : what.environment) ::setenv(name.c_str(), value.c_str(), 1);
  signals.restore();
  ::_exit(run_program("vrdma-sandbox", what.words));
}

int status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? kBySignal + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return kFailed;
  return status_of(status);
}

}  // namespace vrdma::cli::sandbox
