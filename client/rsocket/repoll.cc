// RDMACM_1.5: epoll for a set of sockets over RDMA and other descriptors.
//
// The descriptor of a set is a kernel epoll instance, which contains the other descriptors. The
// sockets over RDMA are stored here; a wait is one rpoll of them and of that instance.
// Level-triggered, as in rdma-core: EPOLLET is ignored. EPOLLONESHOT, EPOLLRDHUP and errors are as
// in epoll(7).
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "client/dial/across_fork.h"
#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/link.h"
#include "client/rsocket/rsocket.h"

extern "C" {
// Declared in rsocket.h of rdma-core 65.
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, epoll_event* event);
int repoll_wait(int epfd, epoll_event* events, int maxevents, int timeout);
}

namespace vrdma::client {

int poll_sockets(pollfd* fds, nfds_t count, int timeout);
bool close_poll_set(int fd);

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kAlways = EPOLLERR | EPOLLHUP;
constexpr uint32_t kKnown = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;

// A closed socket leaves its sets, even if another socket has its number by now.
struct Member {
  epoll_event wanted{};
  std::weak_ptr<RSocket> socket;
  bool armed = true;  // not reported yet, with EPOLLONESHOT
};

struct PollSet {
  base::Fd epoll;
  base::Fd nudge;  // an eventfd in `epoll`: waiting threads check again
  std::mutex mutex;
  std::map<int, Member> members;  // under the mutex
  int last = -1;                  // likewise; the last reported socket, for round robin
};

using PollSets = AcrossFork<std::unordered_map<int, std::shared_ptr<PollSet>>>;  // by descriptor

PollSets& sets() { return PollSets::instance(); }
[[maybe_unused]] const PollSets& sets_made_at_load = sets();  // not by a thread that a child lacks

std::shared_ptr<PollSet> find_set(int fd) {
  const std::lock_guard lock(sets().mutex);
  const auto it = sets().content.find(fd);
  if (it != sets().content.end()) return it->second;
  errno = ::fcntl(fd, F_GETFD) < 0 ? EBADF : EINVAL;
  return nullptr;
}

int refuse(int error) {
  errno = error;
  return -1;
}

int create(int flags) {
  if ((flags & ~(EPOLL_CLOEXEC | O_NONBLOCK)) != 0) return refuse(EINVAL);
  auto set = std::make_shared<PollSet>();
  set->epoll = base::Fd(::epoll_create1(flags & EPOLL_CLOEXEC));
  set->nudge = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!set->epoll.valid() || !set->nudge.valid()) return -1;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = set.get();
  if (::epoll_ctl(set->epoll.get(), EPOLL_CTL_ADD, set->nudge.get(), &event) != 0) return -1;
  const int fd = set->epoll.get();
  const std::lock_guard lock(sets().mutex);
  sets().content[fd] = std::move(set);
  return fd;
}

int change(PollSet& set, int op, int fd, const epoll_event* event) {
  if (op != EPOLL_CTL_DEL && event == nullptr) return refuse(EFAULT);
  const auto socket = RSocket::try_find(fd);
  const std::lock_guard lock(set.mutex);
  auto it = set.members.find(fd);
  if (it != set.members.end() && it->second.socket.lock() != socket) {
    set.members.erase(it);
    it = set.members.end();
  }
  if (socket == nullptr) {
    epoll_event copy = event != nullptr ? *event : epoll_event{};
    copy.events &= ~static_cast<uint32_t>(EPOLLET);
    return ::epoll_ctl(set.epoll.get(), op, fd, &copy);
  }
  const bool known = it != set.members.end();
  switch (op) {
    case EPOLL_CTL_ADD:
      if (known) return refuse(EEXIST);
      set.members[fd] = Member{*event, socket, true};
      break;
    case EPOLL_CTL_MOD:
      if (!known) return refuse(ENOENT);
      it->second = Member{*event, socket, true};
      break;
    case EPOLL_CTL_DEL:
      if (!known) return refuse(ENOENT);
      set.members.erase(it);
      break;
    default:
      return refuse(EINVAL);
  }
  return ::eventfd_write(set.nudge.get(), 1);
}

// The pollfds of a wait: the sockets by number, then the kernel's set.
std::vector<pollfd> polled(PollSet& set) {
  std::vector<pollfd> all;
  const std::lock_guard lock(set.mutex);
  for (auto it = set.members.begin(); it != set.members.end();) {
    const auto& [fd, member] = *it;
    const auto socket = member.socket.lock();
    if (socket == nullptr || socket != RSocket::try_find(fd)) {
      it = set.members.erase(it);
      continue;
    }
    if (member.armed) all.push_back({fd, static_cast<short>(member.wanted.events & kKnown), 0});
    ++it;
  }
  all.push_back({set.epoll.get(), POLLIN, 0});
  return all;
}

// Reports sockets round robin, up to `room`.
int tell_sockets(PollSet& set, const std::vector<pollfd>& found, epoll_event* events, int room) {
  const std::lock_guard lock(set.mutex);
  const size_t count = found.size() - 1;
  const auto first = std::find_if(found.begin(), found.end() - 1,
                                  [&](const pollfd& each) { return each.fd > set.last; }) -
                     found.begin();
  int told = 0;
  for (size_t i = 0; i < count && told < room; ++i) {
    const pollfd& each = found[(static_cast<size_t>(first) + i) % count];
    const auto it = set.members.find(each.fd);
    if (each.revents == 0 || it == set.members.end() || !it->second.armed) continue;
    Member& member = it->second;
    const auto is = static_cast<uint32_t>(each.revents) & (member.wanted.events | kAlways);
    if (is == 0) continue;
    events[told].events = is;
    events[told++].data = member.wanted.data;
    set.last = each.fd;
    if ((member.wanted.events & EPOLLONESHOT) != 0) member.armed = false;
  }
  return told;
}

// Reports the other descriptors, without waiting; -1 and errno.
int tell_others(PollSet& set, epoll_event* events, int room) {
  int count = ::epoll_wait(set.epoll.get(), events, room, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr != &set) continue;
    eventfd_t nudges = 0;
    (void)::eventfd_read(set.nudge.get(), &nudges);
    events[i] = events[--count];
    break;
  }
  return count;
}

int wait_for(PollSet& set, epoll_event* events, int room, int timeout) {
  if (room <= 0) return refuse(EINVAL);
  if (events == nullptr) return refuse(EFAULT);
  const auto end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
  for (;;) {
    auto found = polled(set);
    int left = -1;
    if (timeout >= 0) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      left = static_cast<int>(std::max<int64_t>(rest, 0));
    }
    if (poll_sockets(found.data(), found.size(), left) < 0) return -1;
    int told = tell_sockets(set, found, events, room);
    if (found.back().revents != 0 && told < room) {
      const int more = tell_others(set, events + told, room - told);
      if (more < 0 && told == 0) return -1;
      told += std::max(more, 0);
    }
    if (told > 0 || (timeout >= 0 && Clock::now() >= end)) return told;
  }
}

}  // namespace

// For rclose(): true if the descriptor was a set.
bool close_poll_set(int fd) {
  std::shared_ptr<PollSet> set;
  const std::lock_guard lock(sets().mutex);
  const auto it = sets().content.find(fd);
  if (it == sets().content.end()) return false;
  set = std::move(it->second);
  sets().content.erase(it);
  (void)::eventfd_write(set->nudge.get(), 1);
  return true;
}

}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int repoll_create(int flags) try {
  VRDMA_PASS_ON(-1, repoll_create, flags)
  return create(flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int repoll_ctl(int epfd, int op, int fd, epoll_event* event) try {
  VRDMA_PASS_ON(-1, repoll_ctl, epfd, op, fd, event)
  if (fd < 0) return refuse(EBADF);
  if (fd == epfd) return refuse(EINVAL);
  const auto set = find_set(epfd);
  return set != nullptr ? change(*set, op, fd, event) : -1;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int repoll_wait(int epfd, epoll_event* events, int maxevents, int timeout) try {
  VRDMA_PASS_ON(-1, repoll_wait, epfd, events, maxevents, timeout)
  const auto set = find_set(epfd);
  return set != nullptr ? wait_for(*set, events, maxevents, timeout) : -1;
}
VRDMA_OR_ENOMEM(-1)
