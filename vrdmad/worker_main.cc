// vrdmad-worker: a data worker as a process of its own. The broker starts it; no user does.
//
// It begins with two sockets (vrdmad/broker/worker_child.h): to control, which sends it all that it
// works with, and to the broker, which checks the programs of its own connections. It has no
// capability, an empty root and an empty network namespace. After its start it opens nothing, and a
// system call that it does not need kills it.
//
// When control closes its socket, it ends at once: its sessions are left to the next worker.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/base/event_loop.h"
#include "core/base/log.h"
#include "transport/hole_guard.h"
#include "vrdmad/broker/broker_process.h"
#include "vrdmad/worker/link.h"
#include "vrdmad/worker/messages_codec.h"
#include "vrdmad/worker/worker.h"
#include "vrdmad/worker_system_calls.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): of a program
using namespace vrdma::vrdmad;  // NOLINT(google-build-using-namespace)

constexpr int kControl = 3, kBroker = 4;

[[noreturn]] void give_up(const char* why) {
  (void)std::fprintf(stderr, "vrdmad-worker: %s\n", why);
  ::_exit(1);
}

// Tells control which session was in hand, so that one that crashes each worker is ended. Only what
// a signal handler may do: Crashed is encoded by hand, and the codec's test has its form.
void on_crash(int signal) {
  constexpr auto kCrashed = static_cast<uint8_t>(std::variant_size_v<ToControl> - 1);
  const uint32_t session = transport::Runnable::session_in_hand();
  std::array<uint8_t, 9> message{kCrashed, static_cast<uint8_t>(signal)};
  for (unsigned i = 0; i < 4; ++i) message[5 + i] = static_cast<uint8_t>(session >> 8 * i);
  (void)::send(kControl, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)::raise(signal);  // for which there is no handler any more
}

// On the thread of the loop, also when its stack is exhausted.
void report_crashes() {
  static std::array<uint8_t, 16384> stack;
  const stack_t other{stack.data(), 0, stack.size()};
  (void)::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGABRT, SIGILL, SIGFPE})
    (void)::sigaction(signal, &action, nullptr);
}

// On one line, and no longer than a message may be.
std::string one_line(std::string sentence) {
  for (char& c : sentence)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  sentence.resize(std::min(sentence.size(), kMostText));
  return sentence;
}

}  // namespace

int main() {
  for (const int socket : {kControl, kBroker})
    if (::fcntl(socket, F_SETFD, FD_CLOEXEC) != 0) give_up("it is started by vrdmad");
  ::signal(SIGPIPE, SIG_IGN);
  (void)::prctl(PR_SET_NAME, "vrdmad-worker");
  // Otherwise malloc(3) opens a file to count the processors when a thread begins.
  (void)::mallopt(M_ARENA_MAX, 2);
  ::signal(SIGXFSZ, SIG_IGN);  // a journal that cannot grow is forbidden (record_file.h)
  report_crashes();
  const bool guarded = transport::HoleGuard::start().has_value();
  auto loop = base::EventLoop::create();
  if (!loop) give_up(loop.error().message().c_str());
  std::unique_ptr<Link> link;
  const auto tell = [&link](const ToControl& message) {
    auto bytes = encode(message);
    if (bytes && link != nullptr) link->send(std::move(*bytes), {});
  };
  base::set_log([&](base::LogLevel level, const std::string& sentence) {
    (*loop)->post([=, &tell] { tell(Say{level, one_line(sentence)}); });
  });
  Worker worker(**loop, BrokerProcess::over(base::Fd(kBroker)), tell);
  auto made = Link::start(
      **loop, base::Fd(kControl),
      [&worker](std::span<const uint8_t> bytes, Beside beside) {
        auto message = decode_to_worker(bytes);
        if (message) worker.take({std::move(*message), std::move(beside)});
        return message.has_value();
      },
      [](const std::string&) { ::_exit(0); });
  if (!made) give_up(made.error().message().c_str());
  link = std::move(*made);
  if (!guarded)
    base::log_warning(
        "a worker has no userfaultfd: memory in place is reached like other memory, which is "
        "slower");
  if (auto confined = confine_worker(); !confined) give_up(confined.error().message().c_str());
  (void)::malloc_trim(0);  // what made the filter of system calls is free now
  (*loop)->run();
  return 0;
}
