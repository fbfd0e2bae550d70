// The table of sockets over RDMA by descriptor: creation and duplication.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "client/dial/across_fork.h"
#include "client/rsocket/rsocket.h"

namespace vrdma::client {

namespace {

struct Sockets {
  std::atomic<pid_t> owner = 0;  // the process that closes remaining sockets at exit
  std::unordered_map<int, std::shared_ptr<RSocket>> by_fd;
};

// A child of fork(2) has none: what it had at these numbers are plain descriptors, which it may
// close, and use again for others.
using Table = AcrossFork<Sockets, false>;
Table& table() { return Table::instance(); }
Sockets& all() { return table().content; }
[[maybe_unused]] const Sockets& sockets_made_at_load = all();  // not by a thread that a child lacks

}  // namespace

std::shared_ptr<RSocket> RSocket::try_find(int fd) {
  const std::shared_lock lock(table().mutex);
  const auto it = all().by_fd.find(fd);
  return it != all().by_fd.end() ? it->second : nullptr;
}

std::shared_ptr<RSocket> RSocket::find(int fd) {
  auto found = try_find(fd);
  if (found == nullptr) errno = ::fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTSOCK;
  return found;
}

void RSocket::enter(const std::shared_ptr<RSocket>& socket) {
  const std::lock_guard lock(table().mutex);
  if (all().owner == 0) {
    all().owner = ::getpid();
    std::atexit(close_all);
  }
  all().by_fd[socket->fd()] = socket;
}

// Closes sockets that the program left open, as the kernel does, so that peers see the end of the
// stream.
void RSocket::close_all() {
  std::unordered_map<int, std::shared_ptr<RSocket>> left;
  std::set<RSocket*> closed;
  if (all().owner != ::getpid()) return;  // in a forked child the sockets are the parent's
  {
    const std::lock_guard lock(table().mutex);
    left.swap(all().by_fd);
  }
  for (const auto& [fd, socket] : left)
    if (closed.insert(socket.get()).second) socket->close();
}

bool RSocket::is_own_process() { return table().is_own(); }
bool RSocket::are_forgotten() { return table().is_forgotten(); }

std::shared_ptr<RSocket> RSocket::remove(int fd, bool* last) {
  const std::lock_guard lock(table().mutex);
  const auto it = all().by_fd.find(fd);
  if (it == all().by_fd.end()) {
    errno = ::fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTSOCK;
    return nullptr;
  }
  auto socket = it->second;
  all().by_fd.erase(it);
  const auto other = std::find_if(all().by_fd.begin(), all().by_fd.end(),
                                  [&](const auto& each) { return each.second == socket; });
  *last = other == all().by_fd.end();
  if (*last) return socket;
  // The number becomes free; another descriptor takes its place for the same open file.
  const Lock changing(socket->mutex_);
  if (socket->epoll_.get() == fd) {
    (void)socket->epoll_.release();
    socket->epoll_ = base::Fd(other->first);
  }
  ::close(fd);
  return socket;
}

int RSocket::duplicate(int fd, int command, int least) {
  const std::lock_guard lock(table().mutex);
  const auto it = all().by_fd.find(fd);
  if (it == all().by_fd.end()) return -EBADF;
  const int made = ::fcntl(fd, command, least);
  if (made < 0) return -errno;
  const auto socket = it->second;
  all().by_fd[made] = socket;
  return made;
}

int RSocket::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

void RSocket::unwatch(int fd) { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

int RSocket::open_channel() {
  if (channel_ != nullptr) return 0;
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return -errno;
  if (::fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return -errno;
  return watch(channel_->fd);
}

void RSocket::end(int error) {
  if (end_ != 0) return;
  end_ = error_ = error;
  nudge();
}

int RSocket::open() {
  epoll_ = base::Fd(::epoll_create1(0));
  nudge_ = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_.valid() || !nudge_.valid()) return -errno;
  return watch(nudge_.get());
}

}  // namespace vrdma::client
