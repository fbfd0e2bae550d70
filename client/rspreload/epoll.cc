// epoll(7) for sockets over RDMA.
//
// The kernel's set contains the other descriptors. The sockets over RDMA are stored here; a wait is
// one rpoll() of them and of the kernel's set, so it looks at each of them. Sets without sockets
// over RDMA are left to the kernel.
//
// EPOLLET: a reported event is not reported again until the program has read or written.
#include <rdma/rsocket.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "client/dial/across_fork.h"
#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rspreload/preload.h"

namespace vrdma::rspreload {

namespace {

constexpr uint32_t kAlways = EPOLLERR | EPOLLHUP;
constexpr uint32_t kKnown = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;

struct Member {
  epoll_event wanted{};
  uint32_t told = 0;  // reported and not used since; with EPOLLET
  bool armed = true;  // not reported yet, with EPOLLONESHOT
  [[nodiscard]] uint32_t awaited() const { return wanted.events & kKnown & ~told; }
};

struct Set {
  ~Set() {
    if (nudge >= 0) NEXT(close)(nudge);
  }
  std::mutex mutex;  // guards the next two
  std::map<int, Member> members;
  int last = -1;   // the last reported socket, for round robin
  int nudge = -1;  // an eventfd in the kernel's set: waiting threads check again
};

std::atomic<size_t> set_count = 0;
std::atomic<bool> parent_had_sets = false;
char nudge_mark = 0;  // its address is the data of a nudge
bool is_nudge(const epoll_event& event) { return event.data.ptr == &nudge_mark; }

// By descriptor; of this process alone, because another thread may have had a set's lock at a fork.
using Sets = client::AcrossFork<std::unordered_map<int, std::shared_ptr<Set>>, false>;

std::shared_ptr<Set> find_set(int fd) {
  if (set_count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(Sets::instance().mutex);
  const auto it = Sets::instance().content.find(fd);
  return it != Sets::instance().content.end() ? it->second : nullptr;
}

std::vector<std::pair<int, std::shared_ptr<Set>>> all_sets() {
  if (set_count.load(std::memory_order_acquire) == 0) return {};
  const std::shared_lock lock(Sets::instance().mutex);
  return {Sets::instance().content.begin(), Sets::instance().content.end()};
}

void wake(const Set& set) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t done = NEXT(write)(set.nudge, &one, sizeof one);
}

// nullptr and errno: the descriptor is not an epoll instance.
std::shared_ptr<Set> make_set(int fd) {
  if (auto known = find_set(fd); known != nullptr) return known;
  auto set = std::make_shared<Set>();
  set->nudge = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (set->nudge < 0) return nullptr;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &nudge_mark;
  if (NEXT(epoll_ctl)(fd, EPOLL_CTL_ADD, set->nudge, &event) != 0) return nullptr;
  const std::lock_guard lock(Sets::instance().mutex);
  const auto [it, is_new] = Sets::instance().content.emplace(fd, set);
  if (is_new) set_count.fetch_add(1, std::memory_order_release);
  return it->second;
}

int change(int fd, int command, int member, const epoll_event* event) {
  if (command != EPOLL_CTL_DEL && event == nullptr) return EFAULT;
  const auto set = make_set(fd);
  if (set == nullptr) return errno;
  const std::lock_guard lock(set->mutex);
  const auto it = set->members.find(member);
  const bool known = it != set->members.end();
  switch (command) {
    case EPOLL_CTL_ADD:
      if (known) return EEXIST;
      set->members[member].wanted = *event;
      break;
    case EPOLL_CTL_MOD:
      if (!known) return ENOENT;
      it->second = Member{*event, 0, true};
      break;
    case EPOLL_CTL_DEL:
      if (!known) return ENOENT;
      set->members.erase(it);
      break;
    default:
      return EINVAL;
  }
  wake(*set);
  return 0;
}

// Reports the members that rpoll() found, round robin, up to `room`.
int tell_members(Set& set, const std::vector<pollfd>& found, epoll_event* events, int room) {
  const std::lock_guard lock(set.mutex);
  const auto first = std::find_if(found.begin(), found.end(),
                                  [&](const pollfd& each) { return each.fd > set.last; });
  const auto begin = static_cast<size_t>(first - found.begin());
  int count = 0;
  for (size_t i = 0; i < found.size() && count < room; ++i) {
    const pollfd& each = found[(begin + i) % found.size()];
    const auto it = set.members.find(each.fd);
    if (each.revents == 0 || it == set.members.end() || !it->second.armed) continue;
    Member& member = it->second;
    const auto is =
        static_cast<uint32_t>(each.revents) & (member.wanted.events | kAlways) & ~member.told;
    if (is == 0) continue;
    events[count].events = is;
    events[count++].data = member.wanted.data;
    set.last = each.fd;
    if ((member.wanted.events & EPOLLET) != 0) member.told |= is;
    if ((member.wanted.events & EPOLLONESHOT) != 0) member.armed = false;
  }
  return count;
}

// Reports from the kernel's part of a set, without waiting.
int tell_others(int fd, const Set& set, epoll_event* events, int room) {
  int count = NEXT(epoll_wait)(fd, events, room, 0);
  for (int i = 0; i < count; ++i) {
    if (!is_nudge(events[i])) continue;
    uint64_t nudges = 0;
    [[maybe_unused]] const ssize_t done = NEXT(read)(set.nudge, &nudges, sizeof nudges);
    events[i] = events[--count];
    break;
  }
  return count;
}

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

int wait_for(int fd, Set& set, epoll_event* events, int room, int timeout) {
  if (room <= 0 || events == nullptr) {
    errno = room <= 0 ? EINVAL : EFAULT;
    return -1;
  }
  const int64_t end = timeout < 0 ? 0 : now_ms() + timeout;
  std::vector<pollfd> looked;
  for (;;) {
    looked.clear();
    {
      const std::lock_guard lock(set.mutex);
      for (const auto& [member, how] : set.members)
        // With EPOLLET, the end of a socket is reported only once.
        if (how.armed && (how.told & kAlways) == 0)
          looked.push_back({member, static_cast<short>(how.awaited()), 0});
    }
    looked.push_back({fd, POLLIN, 0});
    const int left = timeout < 0 ? -1 : static_cast<int>(std::max<int64_t>(end - now_ms(), 0));
    const int ready = rpoll(looked.data(), static_cast<nfds_t>(looked.size()), left);
    if (ready < 0) return -1;
    const bool others = looked.back().revents != 0;
    looked.pop_back();
    int count = tell_members(set, looked, events, room);
    if (others && count < room) {
      const int more = tell_others(fd, set, events + count, room - count);
      if (more < 0 && count == 0) return -1;
      count += std::max(more, 0);
    }
    if (count > 0 || (timeout >= 0 && now_ms() >= end)) return count;
  }
}

}  // namespace

void forget_sets() {
  parent_had_sets = parent_had_sets || set_count != 0;
  set_count = 0;
}

void leave_sets(int fd) {
  if (set_count.load(std::memory_order_acquire) == 0 || !is_own_process()) return;
  for (const auto& [number, set] : all_sets()) {
    if (number == fd) {
      const std::lock_guard lock(Sets::instance().mutex);
      if (Sets::instance().content.erase(fd) != 0)
        set_count.fetch_sub(1, std::memory_order_release);
      continue;
    }
    const std::lock_guard lock(set->mutex);
    set->members.erase(fd);
  }
}

void become_plain_in_sets(int fd) {
  for (const auto& [number, set] : all_sets()) {
    const std::lock_guard lock(set->mutex);
    const auto it = set->members.find(fd);
    if (it == set->members.end()) continue;
    (void)NEXT(epoll_ctl)(number, EPOLL_CTL_ADD, fd, &it->second.wanted);
    set->members.erase(it);
    wake(*set);
  }
}

void used_in_sets(int fd, uint32_t events) {
  for (const auto& [number, set] : all_sets()) {
    const std::lock_guard lock(set->mutex);
    const auto it = set->members.find(fd);
    if (it == set->members.end() || (it->second.told & events) == 0) continue;
    it->second.told &= ~events;
    wake(*set);
  }
}

}  // namespace vrdma::rspreload

using namespace vrdma::rspreload;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int epoll_ctl(int set, int command, int fd, epoll_event* event) try {
  if (!over_rdma(fd)) return NEXT(epoll_ctl)(set, command, fd, event);
  const int error = change(set, command, fd, event);
  if (error == 0) return 0;
  errno = error;
  return -1;
}
VRDMA_OR_ENOMEM(-1)

// Between the two checks the set may get its first socket over RDMA; then the nudge wakes this
// wait.
VRDMA_EXPORT int epoll_wait(int fd, epoll_event* events, int room, int timeout) try {
  for (;;) {
    if (const auto set = find_set(fd); set != nullptr)
      return wait_for(fd, *set, events, room, timeout);
    const int count = NEXT(epoll_wait)(fd, events, room, timeout);
    if (count <= 0) return count;
    const bool has_set = find_set(fd) != nullptr;
    if (!has_set && !parent_had_sets) return count;
    const auto kept = std::remove_if(events, events + count, is_nudge);
    if (kept == events + count) return count;
    if (has_set) continue;
    // The kernel's set is that of a parent, which reads its nudge.
    if (kept != events || timeout == 0) return static_cast<int>(kept - events);
    constexpr timespec kNap{0, 1'000'000};
    ::nanosleep(&kNap, nullptr);
    if (timeout > 0) --timeout;
  }
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int epoll_pwait(int fd, epoll_event* events, int room, int timeout,
                             const sigset_t* mask) try {
  const Masked masked(mask);
  return epoll_wait(fd, events, room, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int epoll_pwait2(int fd, epoll_event* events, int room, const timespec* timeout,
                              const sigset_t* mask) try {
  if (!is_valid_timeout(timeout)) return -1;
  const Masked masked(mask);
  return epoll_wait(fd, events, room, milliseconds(timeout));
}
VRDMA_OR_ENOMEM(-1)
