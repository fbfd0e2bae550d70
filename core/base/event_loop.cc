#include "core/base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
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

Result<std::unique_ptr<EventLoop>> EventLoop::create(const Clock& clock) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return fail_errno("create an epoll instance");
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail_errno("create an eventfd");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // edge-triggered, so it need not be read
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return fail_errno("watch an eventfd");
  return std::unique_ptr<EventLoop>(new EventLoop(clock, std::move(epoll), std::move(wake)));
}

EventLoop::~EventLoop() {
  // The callbacks may own attachments of this loop, so destroy them while the tables still exist.
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
  if (running_here != this) ::eventfd_write(wake_.get(), 1);  // else run() checks before it waits
}

void EventLoop::post(std::function<void()> work, int waker) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  ::eventfd_write(waker, 1);
}

void EventLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
}

// Work that is posted meanwhile waits for the next pass.
bool EventLoop::run_posted() {
  size_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    left = std::min(posted_.size(), kPostedPerPass);
  }
  const bool any = left > 0;
  for (; left > 0; --left) {
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty()) break;  // a nested run() took it
      work = std::move(posted_.front());
      posted_.pop_front();
    }
    work();
  }
  return any;
}

// Timers that become due after `begun` wait for the next pass.
bool EventLoop::run_due_timers(TimePoint begun) {
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

// Returns whether there was an event, as the two functions above do. `looked`: time of the check.
bool EventLoop::wait(bool poll_only, TimePoint& looked) {
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
  looked = now();
  passes_->began.store(looked.time_since_epoch().count(), std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    const auto& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 == kWakeId) continue;
    auto it = entries_.find(event.data.u64);
    if (it == entries_.end()) continue;
    const std::shared_ptr<Entry> entry = it->second;  // a callback may destroy its Watch
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
    const Pass done = pass(busy || lingers);
    busy = done.busy;
    if (done.found || busy) linger_.begin(done.ended);
    lingers = !busy && linger_.again();
  }
}

bool EventLoop::step() {
  const EventLoop* const outer = std::exchange(running_here, this);
  const Pass done = pass(true);
  running_here = outer;
  return done.found || done.busy;
}

std::optional<TimePoint> EventLoop::next_timer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

EventLoop::Pass EventLoop::pass(bool poll_only) {
  TimePoint looked;
  Pass done;
  done.found = wait(poll_only, looked);
  bool others = run_posted();
  others |= run_due_timers(looked);
  const TimePoint begun = others ? now() : looked;
  done.ended = begun;
  done.busy = poller_ && poller_(done.ended);
  done.found |= others;
  if (done.found && done.ended == begun) done.ended = now();
  passes_->began.store(0, std::memory_order_relaxed);
  const Duration took = done.ended - looked;
  if (took.count() > passes_->longest.load(std::memory_order_relaxed))
    passes_->longest.store(took.count(), std::memory_order_relaxed);
  return done;
}

Duration EventLoop::longest_pass(const Passes& passes) {
  const Duration longest(passes.longest.load(std::memory_order_relaxed));
  const int64_t began = passes.began.load(std::memory_order_relaxed);
  if (began == 0) return longest;
  return std::max(longest, Duration(Clock::steady().now().time_since_epoch().count() - began));
}

}  // namespace vrdma::base
