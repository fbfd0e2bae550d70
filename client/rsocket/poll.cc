// Sleeping on sockets over RDMA; rpoll() and rselect() on them and on other descriptors.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "client/dial/export.h"
#include "client/rsocket/rsocket.h"

namespace vrdma::client {

// Wakes sleeping threads, so that they check again.
void RSocket::nudge() {
  if (sleepers_ == 0) return;
  ++nudges_;
  to_rise_ = sleepers_;
  if (!nudged_) nudged_ = ::eventfd_write(nudge_.get(), 1) == 0;
}

RSocket::Began RSocket::lie_down() {
  ++sleepers_;
  return nudges_;
}

void RSocket::get_up(Began began) {
  --sleepers_;
  if (!nudged_ || began == nudges_ || --to_rise_ > 0) return;
  eventfd_t count = 0;
  (void)::eventfd_read(nudge_.get(), &count);
  nudged_ = false;
}

int RSocket::sleep(Lock& lock, int timeout) {
  // Also if the thread is cancelled in poll(2).
  struct Sleeping {
    RSocket& socket;
    Lock& lock;
    const Began began;
    ~Sleeping() {
      lock.lock();
      socket.get_up(began);
    }
  };
  const Sleeping sleeping{*this, lock, lie_down()};
  lock.unlock();
  pollfd self{epoll_.get(), POLLIN, 0};
  const int ready = ::poll(&self, 1, timeout);
  return ready < 0 ? -errno : 0;
}

void RSocket::resume() {
  disarm();
  take_events();
  process();
  if (sleepers_ > 0) arm();  // other threads sleep on
}

short RSocket::poll(short events) {
  const Lock lock(mutex_);
  process();
  if (const short now = events_now(events); now != 0) return now;
  take_events();
  return events_now(events);
}

short RSocket::begin_sleep(short events, Began* began) {
  const Lock lock(mutex_);
  arm();
  take_events();
  const short now = events_now(events);
  if (now == 0) *began = lie_down();
  return now;
}

void RSocket::end_sleep(Began began) {
  const Lock lock(mutex_);
  get_up(began);
  resume();
}

void RSocket::abandon_sleep(Began began) {
  const Lock lock(mutex_);
  get_up(began);
}

namespace {

using Clock = std::chrono::steady_clock;

class Poll {
 public:
  Poll(pollfd* fds, nfds_t count) : fds_(fds), asked_(fds, fds + count), sockets_(count) {
    for (size_t i = 0; i < count; ++i)
      if (fds[i].fd >= 0) sockets_[i].socket = RSocket::try_find(fds[i].fd);
  }
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;
  // The thread may be cancelled in poll(2).
  ~Poll() {
    for (const Polled& each : std::span(sockets_).first(asleep_))
      if (each.socket != nullptr) each.socket->abandon_sleep(each.began);
  }

  // `timeout` in ms; negative: no limit. Result as of poll(2).
  int run(int timeout) {
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::milliseconds(timeout);
    constexpr std::chrono::microseconds kSpin{10};
    do {
      if (const int found = look(); found != 0 || timeout == 0) return found;
    } while (Clock::now() < begin + kSpin);
    for (;;) {
      int left = -1;
      if (timeout > 0) {
        left = static_cast<int>(std::max<int64_t>(
            std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count(), 0));
      }
      const int slept = sleep(left);
      if (slept < 0) return -1;
      if (const int found = look(); found != 0) return found;
      if (left == 0) return 0;
    }
  }

 private:
  // The number of descriptors with events, or -1 and errno.
  int look() {
    int found = 0;
    for (size_t i = 0; i < asked_.size(); ++i) {
      // poll(2) ignores a negative descriptor.
      asked_[i].fd = sockets_[i].socket != nullptr ? -1 : fds_[i].fd;
      asked_[i].events = fds_[i].events;
    }
    if (::poll(asked_.data(), asked_.size(), 0) < 0) return -1;
    for (size_t i = 0; i < asked_.size(); ++i) {
      RSocket* const socket = sockets_[i].socket.get();
      fds_[i].revents = socket != nullptr ? socket->poll(fds_[i].events) : asked_[i].revents;
      if (fds_[i].revents != 0) ++found;
    }
    return found;
  }

  // Sleeps until something may have happened.
  int sleep(int timeout) {
    bool ready = false;
    for (asleep_ = 0; asleep_ < sockets_.size(); ++asleep_) {
      auto& [socket, began] = sockets_[asleep_];
      if (socket == nullptr) continue;
      asked_[asleep_].fd = socket->fd();
      asked_[asleep_].events = POLLIN;
      ready = socket->begin_sleep(fds_[asleep_].events, &began) != 0;
      if (ready) break;
    }
    int slept = 0;
    if (!ready) slept = ::poll(asked_.data(), asked_.size(), timeout);
    const int why = errno;
    while (asleep_ > 0) {
      const Polled& last = sockets_[--asleep_];
      if (last.socket != nullptr) last.socket->end_sleep(last.began);
    }
    errno = why;
    return slept;
  }

  struct Polled {
    std::shared_ptr<RSocket> socket;  // nullptr: another descriptor
    RSocket::Began began = 0;
  };
  pollfd* fds_;
  std::vector<pollfd> asked_;
  std::vector<Polled> sockets_;
  size_t asleep_ = 0;  // of those, the first sleep
};

bool has(const fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); }

}  // namespace

int poll_sockets(pollfd* fds, nfds_t count, int timeout) { return Poll(fds, count).run(timeout); }

int select_sockets(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (count < 0 || count > FD_SETSIZE) {
    errno = EINVAL;
    return -1;
  }
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) {
    errno = EINVAL;
    return -1;
  }
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    int events = has(read, fd) ? POLLIN : 0;
    if (has(write, fd)) events |= POLLOUT;
    if (has(except, fd)) events |= POLLPRI;
    if (events != 0) fds.push_back({fd, static_cast<short>(events), 0});
  }
  constexpr int64_t kMost = 1'000'000'000;  // ms
  int64_t wait = -1;
  if (timeout != nullptr)
    wait =
        std::min<int64_t>(timeout->tv_sec, kMost / 1000) * 1000 +
        std::min<int64_t>(timeout->tv_usec / 1000 + (timeout->tv_usec % 1000 != 0 ? 1 : 0), kMost);
  const int limit = static_cast<int>(std::min(wait, kMost));
  if (poll_sockets(fds.data(), fds.size(), limit) < 0) return -1;
  for (const pollfd& each : fds) {
    if ((each.revents & POLLNVAL) == 0) continue;
    errno = EBADF;
    return -1;
  }
  int found = 0;
  // As select(2) in the kernel derives its sets from poll.
  const auto answer = [&](fd_set* set, const pollfd& each, int asked, int means) {
    if (set == nullptr || (each.events & asked) == 0) return;
    if ((each.revents & means) != 0)
      ++found;
    else
      FD_CLR(each.fd, set);
  };
  for (const pollfd& each : fds) {
    answer(read, each, POLLIN, POLLIN | POLLHUP | POLLERR);
    answer(write, each, POLLOUT, POLLOUT | POLLERR);
    answer(except, each, POLLPRI, POLLPRI);
  }
  return found;
}

}  // namespace vrdma::client
