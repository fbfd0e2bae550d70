// One thread's event loop: file descriptors, timers, and work posted by other threads.
//
// A loop belongs to the thread that runs it; only post() and stop() may be called from others.
// It sleeps in epoll_wait(2) until something happens, having looked around for a moment after what
// happened last: an idle loop uses no CPU, and there is no periodic wake-up. A data worker may
// install a poller, which is called in each pass and asks for another pass without sleeping as
// long as it has work.
//
// A pass serves, in this order, up to 64 ready descriptors, up to kPostedPerPass pieces of posted
// work, the timers that were due when it began, and the poller. Each must be short: what one of
// them takes, all others wait. longest_pass() tells how long that was at most.
//
// Attachments (Watch, Timer) are move-only and undo themselves. They may be destroyed inside any
// callback, also their own; a destroyed attachment's callback is never called again. They must not
// outlive the loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/linger.h"

namespace vrdma::base {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class EventLoop {
 public:
  // `events` are epoll's (EPOLLIN, ...).
  using Callback = std::function<void(uint32_t events)>;
  // `now` is the time at which the poller is called; it sets it to the time at which it returns.
  // Returns true while it wants to be called again without sleeping.
  using Poller = std::function<bool(TimePoint& now)>;
  static constexpr size_t kPostedPerPass = 64;

  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { reset(); }
    void reset();
    [[nodiscard]] bool active() const { return loop_ != nullptr; }

   private:
    friend class EventLoop;
    EventLoop* loop_ = nullptr;
    uint64_t id_ = 0;
  };

  class Timer {
   public:
    Timer() = default;
    Timer(Timer&& other) noexcept { *this = std::move(other); }
    Timer& operator=(Timer&& other) noexcept;
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() { reset(); }
    void reset();
    [[nodiscard]] bool active() const { return loop_ != nullptr; }

   private:
    friend class EventLoop;
    EventLoop* loop_ = nullptr;
    uint64_t id_ = 0;
  };

  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Calls `callback` when `fd` is ready. The loop does not own `fd`; close it after the Watch.
  [[nodiscard]] Result<Watch> watch(int fd, uint32_t events, Callback callback);

  // Calls `callback` once, `delay` from now. Keep the Timer, or the call is cancelled.
  [[nodiscard]] Timer after(Duration delay, std::function<void()> callback);

  // Any thread: runs `work` on the loop's thread, in the order posted.
  void post(std::function<void()> work);
  // The same from a thread that does not use this loop's table of descriptors: `waker` is that
  // thread's duplicate of waker().
  void post(std::function<void()> work, int waker);
  [[nodiscard]] int waker() const { return wake_.get(); }

  void set_poller(Poller poller) { poller_ = std::move(poller); }

  // Runs until stop(), which may be called from any thread, also before run(). A loop that was
  // stopped may be run again.
  void run();
  void stop();

  [[nodiscard]] static TimePoint now() { return std::chrono::steady_clock::now(); }

  // Any thread: the longest time between two looks at the descriptors since the loop was made, also
  // of a pass that has not ended. Time during which the thread sleeps in a look does not count;
  // time during which other threads had its processor does.
  [[nodiscard]] Duration longest_pass() const;

 private:
  struct Entry {
    int fd = -1;
    Callback callback;
  };
  struct Pending {
    uint64_t id = 0;
    std::function<void()> callback;
  };

  EventLoop(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  bool run_posted();
  bool run_due_timers(TimePoint begun);
  bool wait(bool poll_only, TimePoint& looked);

  Fd epoll_;
  Fd wake_;
  Poller poller_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;
  std::multimap<TimePoint, Pending> timers_;
  std::unordered_map<uint64_t, std::multimap<TimePoint, Pending>::iterator> timer_by_id_;

  Linger linger_{std::chrono::microseconds(50)};

  std::atomic<int64_t> longest_pass_{0};  // nanoseconds
  std::atomic<int64_t> pass_began_{0};    // nanoseconds of the clock; 0: no pass

  std::mutex mutex_;  // guards posted_ and stopped_
  std::deque<std::function<void()>> posted_;
  bool stopped_ = false;
};

}  // namespace vrdma::base
