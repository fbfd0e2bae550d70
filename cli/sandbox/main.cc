// vrdma-sandbox: a command with vdevices of its own, without root. main() is the process outside of
// the sandbox: it makes the namespaces, passes signals on, and ends with the command's status.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <iostream>

#include "cli/sandbox/demo.h"
#include "cli/sandbox/inside.h"
#include "cli/sandbox/limits.h"
#include "cli/sandbox/process.h"
#include "core/base/standard_streams.h"

namespace {

using namespace vrdma::cli::sandbox;
using vrdma::base::Fd;

// What makes programs slow, and does not keep them from working.
void note_userfaultfd() {
  const Fd watched(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  if (!watched.valid())
    std::cerr << "vrdma-sandbox: note: userfaultfd(2) fails (" << std::strerror(errno)
              << "), so programs do not access each other's memory directly, which is much slower; "
                 "if a container's seccomp filter forbids it: --security-opt seccomp=unconfined\n";
}

// Until the process inside has ended: its exit status.
int wait_outside(pid_t inside, Signals& signals) {
  for (;;) {
    int status = 0;
    bool sent = false;
    while (const int signal = signals.next(&sent))
      if (signal != SIGCHLD && sent) ::kill(inside, signal);
    const pid_t ended = ::waitpid(inside, &status, WNOHANG);
    if (ended == inside) {
      if (WIFSIGNALED(status))
        return complain(std::string("the sandbox was ended by signal ") +
                        std::to_string(WTERMSIG(status)));
      return WEXITSTATUS(status);
    }
    pollfd waiting{signals.fd(), POLLIN, 0};
    (void)::poll(&waiting, 1, -1);
  }
}

int run(int argc, char** argv) {
  Options options;
  int status = 0;
  if (!parse(argc, argv, &options, &status)) return status;
  const auto programs = find_programs();
  if (!programs) return complain(programs.error().message());
  const Needs needs = needs_of(options);
  if (auto enough = compare(needs, limits_of_this_process(), startable_threads(needs.threads));
      !enough)
    return complain(enough.error().message());
  if (options.demo) return show_demo(*programs);
  Fd log;
  if (!options.log.empty()) {
    log = Fd(::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) return complain("cannot open " + options.log + ": " + ::strerror(errno));
  }
  const HostFacts facts = look_at_host();
  const auto space = enter_space(facts);
  if (!space) return complain(space.error().message());
  note_userfaultfd();
  std::array<int, 2> life{};  // its write end is this process's alone
  if (::pipe2(life.data(), O_CLOEXEC) != 0)
    return complain(std::string("pipe: ") + ::strerror(errno));
  Fd gone(life[0]), alive(life[1]);
  const pid_t inside = ::fork();
  if (inside < 0) return complain(std::string("cannot start a process: ") + ::strerror(errno));
  if (inside == 0) {
    alive.reset();
    return run_inside(options, *space, *programs, log.get(), std::move(gone));
  }
  gone.reset();
  Signals signals;  // not before the fork: the child has to know what was blocked before
  return wait_outside(inside, signals);
}

}  // namespace

int main(int argc, char** argv) {
  vrdma::base::fill_standard_streams(true);
  if (argc > 1 && std::strcmp(argv[1], kInner) == 0) return begin_command(argc, argv);
  return run(argc, argv);
}
