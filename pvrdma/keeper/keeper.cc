#include "pvrdma/keeper/keeper.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "core/base/log.h"
#include "core/ipc/socket.h"

namespace vrdma::pvrdma {

namespace {

enum What : uint32_t { kHold = 1, kDrop, kReady, kGone, kConnected };

struct Message {
  uint32_t what, slot;
};

// For a child that must end, while it may wait for vrdmad.
constexpr std::chrono::milliseconds kOrderlyEnd{2000};

std::string how(int status) {
  if (WIFSIGNALED(status)) return "by signal " + std::to_string(WTERMSIG(status));
  return "with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

// --- the child's end ---

// A parent that has gone is noticed by receive().
void Charge::send(uint32_t what, uint32_t slot, int fd) {
  const Message message{what, slot};
  (void)ipc::send_message(keeper_.get(), &message, sizeof message, &fd, fd >= 0 ? 1 : 0);
}

void Charge::hold(uint32_t slot, const base::Fd& fd) { send(kHold, slot, fd.get()); }
void Charge::drop(uint32_t slot) { send(kDrop, slot, -1); }
void Charge::ready() { send(kReady, 0, -1); }
void Charge::gone() { send(kGone, 0, -1); }

base::Result<base::Fd> Charge::receive() {
  Message message{};
  auto received = ipc::receive_any(keeper_.get(), &message, sizeof message, MSG_DONTWAIT);
  if (received.error == EAGAIN) return base::Fd();
  if (received.length <= 0) return base::fail(ECONNRESET, "the keeper ends");
  return received.fds.empty() ? base::Fd() : std::move(received.fds.front());
}

// --- the parent ---

Keeper::Keeper(base::Fd listener, base::Fd signals, uint32_t slots, Work work,
               std::chrono::milliseconds pause)
    : listener_(std::move(listener)),
      signals_(std::move(signals)),
      work_(std::move(work)),
      pause_(pause),
      slots_(slots) {}

base::Result<Keeper::Child> Keeper::start() {
  auto ends = ipc::make_socket_pair();
  if (!ends) return base::pass(std::move(ends).error());
  Child child;
  child.end = std::move(ends->first);
  base::Fd theirs = std::move(ends->second);
  child.pid = ::fork();
  if (child.pid < 0) return base::fail_errno("start a process");
  if (child.pid == 0) {
    child.end.reset();
    listener_.reset();
    signals_.reset();
    ::_exit(work_({std::move(theirs), std::move(vmm_), std::move(slots_), is_first_}));
  }
  return child;
}

bool Keeper::take_message(Child* child) {
  Message message{};
  auto received = ipc::receive_any(child->end.get(), &message, sizeof message, MSG_DONTWAIT);
  if (received.error == EAGAIN) return true;
  if (received.length <= 0) return false;
  if (received.length != sizeof message) return true;
  base::Fd fd = received.fds.empty() ? base::Fd() : std::move(received.fds.front());
  switch (message.what) {
    case kHold:
    case kDrop:
      if (message.slot < slots_.size()) slots_[message.slot] = std::move(fd);
      return true;
    case kReady:
      child->is_ready = true;
      return true;
    case kGone:
      vmm_.reset();
      for (base::Fd& slot : slots_) slot.reset();
      return true;
    default:
      return true;
  }
}

void Keeper::accept(const Child& child) {
  base::Fd vmm(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!vmm.valid()) return;
  if (vmm_.valid()) {
    base::log_warning("a second VMM connects while one is served: it is sent away");
    return;
  }
  vmm_ = std::move(vmm);
  // If the child has died, the next one inherits it.
  const Message message{kConnected, 0};
  const int fd = vmm_.get();
  (void)ipc::send_message(child.end.get(), &message, sizeof message, &fd, 1);
}

bool Keeper::attend(Child* child) {
  for (;;) {
    pollfd all[] = {{signals_.get(), POLLIN, 0},
                    {child->end.get(), POLLIN, 0},
                    // VMMs wait for a child that can serve them.
                    {child->is_ready ? listener_.get() : -1, POLLIN, 0}};
    if (::poll(all, std::size(all), -1) < 0 && errno != EINTR) return true;
    if (all[0].revents != 0) return true;
    if (all[1].revents != 0 && !take_message(child)) return false;
    if (all[2].revents != 0) accept(*child);
  }
}

bool Keeper::sleep_until(std::chrono::steady_clock::time_point end) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd signals{signals_.get(), POLLIN, 0};
    if (::poll(&signals, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

// It ends by itself when its way to the parent does; one that does not is killed. Its status.
int Keeper::end(Child* child, std::chrono::milliseconds patience) {
  child->end.reset();
  const auto until = std::chrono::steady_clock::now() + patience;
  int status = 0;
  while (::waitpid(child->pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) ::kill(child->pid, SIGKILL);
    ::poll(nullptr, 0, 1);
  }
  return status;
}

base::Result<int> Keeper::run() {
  for (bool could_start = true;;) {
    const auto began = std::chrono::steady_clock::now();
    auto child = start();
    if (!child && is_first_) return base::pass(std::move(child.error()));
    if (!child) {  // the host lacks something for a while; the VMM is held meanwhile
      if (std::exchange(could_start, false))
        base::log_warning(
            "the next process that serves the VMM does not start, and is tried again: " +
            child.error().message());
      if (sleep_until(began + pause_)) return 0;
      continue;
    }
    could_start = true;
    const bool must_end = attend(&*child);
    const int status = end(&*child, must_end ? kOrderlyEnd : std::chrono::milliseconds());
    if (must_end) return 0;
    if (is_first_ && !child->is_ready)
      return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
    is_first_ = false;
    base::log_warning("the process that serves the VMM has ended " + how(status) +
                      ": the next one goes on");
    if (sleep_until(began + pause_)) return 0;
  }
}

}  // namespace vrdma::pvrdma
