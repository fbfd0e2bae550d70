#include "core/base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>

namespace vrdma::base {

namespace {
constexpr uint64_t kWakeId = 0;
thread_local const EventLoop* running_here = nullptr;
}  // namespace

EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    reset();
    loop_ = std::exchange(other.loop_, nullptr);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

void EventLoop::Watch::reset() {
  if (loop_ == nullptr) return;
  auto it = loop_->entries_.find(id_);
  if (it != loop_->entries_.end()) {
    ::epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_DEL, it->second->fd, nullptr);
    loop_->entries_.erase(it);
  }
  loop_ = nullptr;
}

EventLoop::Timer& EventLoop::Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    reset();
    loop_ = std::exchange(other.loop_, nullptr);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

void EventLoop::Timer::reset() {
  if (loop_ == nullptr) return;
  auto it = loop_->timer_by_id_.find(id_);
  if (it != loop_->timer_by_id_.end()) {
    loop_->timers_.erase(it->second);
    loop_->timer_by_id_.erase(it);
  }
  loop_ = nullptr;
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return fail_errno("create an epoll instance");
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail_errno("create an eventfd");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edge-triggered, so that it need not be read
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return fail_errno("watch an eventfd");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

EventLoop::~EventLoop() {
  // What is held may own attachments of this loop: it goes while the tables still stand.
  poller_ = nullptr;
  std::exchange(posted_, {}).clear();
  timer_by_id_.clear();
  std::exchange(timers_, {}).clear();
  std::exchange(entries_, {}).clear();
}

Result<EventLoop::Watch> EventLoop::watch(int fd, uint32_t events, Callback callback) {
  const uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail_errno("watch a file descriptor");
  auto entry = std::make_shared<Entry>();
  entry->fd = fd;
  entry->callback = std::move(callback);
  entries_.emplace(id, std::move(entry));
  Watch watch;
  watch.loop_ = this;
  watch.id_ = id;
  return watch;
}

EventLoop::Timer EventLoop::after(Duration delay, std::function<void()> callback) {
  const uint64_t id = next_id_++;
  auto it = timers_.emplace(now() + delay, Pending{id, std::move(callback)});
  timer_by_id_.emplace(id, it);
  Timer timer;
  timer.loop_ = this;
  timer.id_ = id;
  return timer;
}

void EventLoop::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  if (running_here != this) ::eventfd_write(wake_.get(), 1);  // else run() looks before it waits
}

void EventLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
}

bool EventLoop::run_posted() {
  std::vector<std::function<void()>> batch;
  {
    const std::lock_guard lock(mutex_);
    batch.swap(posted_);
  }
  for (auto& work : batch) work();
  return !batch.empty();
}

bool EventLoop::run_due_timers() {
  const TimePoint begun = now();  // what becomes due meanwhile waits for the others' turn
  bool any = false;
  while (!timers_.empty() && timers_.begin()->first <= begun) {
    any = true;
    auto callback = std::move(timers_.begin()->second.callback);
    timer_by_id_.erase(timers_.begin()->second.id);
    timers_.erase(timers_.begin());
    callback();
  }
  return any;
}

// Whether there was anything; so do the two above.
bool EventLoop::wait(bool poll_only) {
  timespec timeout{};
  timespec* limit = nullptr;
  if (poll_only) {
    limit = &timeout;
  } else if (!timers_.empty()) {
    const auto left = std::max(Duration(0), Duration(timers_.begin()->first - now()));
    timeout.tv_sec = left.count() / 1'000'000'000;
    timeout.tv_nsec = left.count() % 1'000'000'000;
    limit = &timeout;
  }
  std::array<epoll_event, 64> ready{};
  const int count =
      ::epoll_pwait2(epoll_.get(), ready.data(), static_cast<int>(ready.size()), limit, nullptr);
  for (int i = 0; i < count; ++i) {
    const auto& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeId) continue;
    auto it = entries_.find(event.data.u64);
    if (it == entries_.end()) continue;
    const std::shared_ptr<Entry> entry = it->second;  // outlives its Watch during the call
    entry->callback(event.events);
  }
  return count > 0;
}

void EventLoop::run() {
  const EventLoop* const outer = std::exchange(running_here, this);
  bool busy = false, lingers = false;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(stopped_, false)) {
        running_here = outer;
        return;
      }
      if (!posted_.empty()) busy = true;
    }
    bool found = wait(busy || lingers);
    found |= run_posted();
    found |= run_due_timers();
    busy = poller_ && poller_();
    if (found || busy) linger_.begin();
    lingers = !busy && linger_.again();
  }
}

}  // namespace vrdma::base
