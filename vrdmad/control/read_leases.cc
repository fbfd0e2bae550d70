#include "vrdmad/control/read_leases.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace vrdma::vrdmad {

namespace {

int lease_signal() { return SIGRTMIN; }

}  // namespace

base::Result<std::unique_ptr<ReadLeases>> ReadLeases::start(base::EventLoop& loop) {
  std::unique_ptr<ReadLeases> leases(new ReadLeases);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, lease_signal());
  ::sigaddset(&signals, SIGIO);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  leases->signals_ = base::Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!leases->signals_.valid()) return base::fail_errno("make a signalfd");
  auto watch = loop.watch(leases->signals_.get(), EPOLLIN,
                          [raw = leases.get()](uint32_t) { raw->read_signals(); });
  if (!watch) return base::pass(std::move(watch.error()));
  leases->watch_ = std::move(*watch);
  return leases;
}

base::Result<void> ReadLeases::take(int fd, std::function<void()> opened) {
  // Giving a lease up resets the first two.
  const f_owner_ex owner{F_OWNER_TID, ::gettid()};
  if (::fcntl(fd, F_SETSIG, lease_signal()) != 0 || ::fcntl(fd, F_SETOWN_EX, &owner) != 0 ||
      ::fcntl(fd, F_SETLEASE, F_WRLCK) != 0)
    return base::fail_errno("lease a file");
  held_[fd] = std::move(opened);
  return {};
}

void ReadLeases::give_up(int fd) {
  if (held_.erase(fd) > 0) ::fcntl(fd, F_SETLEASE, F_UNLCK);
}

void ReadLeases::read_signals() {
  std::vector<std::function<void()>> opened;
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == static_cast<uint32_t>(SIGIO)) {
      for (const auto& [fd, callback] : held_) opened.push_back(callback);
    } else if (const auto found = held_.find(info.ssi_fd); found != held_.end()) {
      opened.push_back(found->second);
    }
  }
  for (const auto& callback : opened) callback();
}

}  // namespace vrdma::vrdmad
