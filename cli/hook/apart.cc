#include "cli/hook/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/base/fd.h"

namespace vrdma::cli::hook {

namespace {

using base::Fd;
using base::Result;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What the process of a step says at its end: an errno, 0 for success, and a sentence.
constexpr size_t kMostWords = 4096;  // bytes; PIPE_BUF, so that one write(2) says all
struct Words {
  int32_t error = 0;
  char sentence[kMostWords - sizeof(int32_t)]{};
};
static_assert(sizeof(Words) == kMostWords);

[[noreturn]] void run_step(const std::function<Result<void>()>& step, const Fd& null,
                           const Fd& answers) {
  end_with_parent();
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    (void)::dup2(null.get(), stream);
  Words words;
  if (const auto done = step(); !done) {
    words.error = done.error().code();
    done.error().message().copy(words.sentence, sizeof words.sentence - 1);
  }
  ::_exit(::write(answers.get(), &words, sizeof words) == ssize_t{sizeof words} ? 0 : 1);
}

// Whether there is something to read, or the end, before `end`.
bool waits_until(const Fd& answers, steady_clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
    pollfd state{answers.get(), POLLIN, 0};
    const int ready = ::poll(&state, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

void end_with_parent() { (void)::prctl(PR_SET_PDEATHSIG, SIGKILL); }

Result<void> run_apart(const std::function<Result<void>()>& step, milliseconds limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::fail_errno("make a pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) return base::fail_errno("open /dev/null");
  const pid_t child = ::fork();
  if (child < 0) return base::fail_errno("make a process");
  if (child == 0) run_step(step, null, write_end);
  write_end.reset();
  if (!waits_until(read_end, steady_clock::now() + limit)) {
    (void)::kill(child, SIGKILL);  // and not waited for, as it may have to wait itself
    return base::fail(ETIMEDOUT,
                      "a file system of the container does not answer: see who serves it (FUSE), "
                      "then start the container again");
  }
  Words words;
  const ssize_t size = ::read(read_end.get(), &words, sizeof words);
  (void)::waitpid(child, nullptr, 0);
  if (size != ssize_t{sizeof words})
    return base::fail(ECHILD, "the process that mounts in the container was killed");
  if (words.error != 0) return base::fail(words.error, words.sentence);
  return {};
}

}  // namespace vrdma::cli::hook
