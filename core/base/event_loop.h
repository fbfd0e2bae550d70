// One thread's event loop: file descriptors, timers, and work posted by other threads.
//
// A loop belongs to the thread that runs it; other threads may call only post() and stop(). It
// sleeps in epoll_wait(2) until an event, after polling for a moment after the previous one
// (linger.h): an idle loop uses no CPU and has no periodic wake-up. A data worker may install a
// poller, which is called in each pass and requests another pass without sleep while it has work.
//
// A pass serves, in this order, up to 64 ready descriptors, up to kPostedPerPass pieces of posted
// work, the timers that were due at its start, and the poller. Each must be short, because all
// others wait for it. longest_pass() returns the longest such wait.
//
// Attachments (Watch, Timer) are move-only and detach when destroyed. They may be destroyed inside
// any callback, including their own; the callback is never called again. They must not outlive the
// loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fd.h"
#include "core/base/linger.h"

namespace vrdma::base {

class EventLoop {
 public:
  // `events` are epoll's (EPOLLIN, ...).
  using Callback = std::function<void(uint32_t events)>;
  // `now`: the time of the call, which the poller sets to the time of its return. Returns true if
  // it must be called again without sleep.
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

  // Its timers go by `clock`, which must outlive it. A loop whose clock is a test's is driven by
  // step().
  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create(
      const Clock& clock = Clock::steady());
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  // Calls `callback` when `fd` is ready. The loop does not own `fd`; destroy the Watch first.
  [[nodiscard]] Result<Watch> watch(int fd, uint32_t events, Callback callback);

  // Calls `callback` once, after `delay`. Destroying the Timer cancels the call.
  [[nodiscard]] Timer after(Duration delay, std::function<void()> callback);

  // Any thread: runs `work` on the loop's thread, in the order of posting.
  void post(std::function<void()> work);
  // The same for a thread that does not share the loop's table of descriptors. `waker`: that
  // thread's duplicate of waker().
  void post(std::function<void()> work, int waker);
  [[nodiscard]] int waker() const { return wake_.get(); }

  void set_poller(Poller poller) { poller_ = std::move(poller); }

  // Runs until stop(), which any thread may call, even before run(). A stopped loop may be run
  // again.
  void run();
  void stop();

  // On the loop's thread, instead of run(): one pass without sleep. Whether there was anything to
  // do, and so perhaps there is more.
  bool step();
  // When the first timer is due. Empty: there is none.
  [[nodiscard]] std::optional<TimePoint> next_timer() const;

  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] TimePoint now() const { return clock_.now(); }

  // How long this loop's passes take, where another process may read it: see longest_pass().
  struct Passes {
    std::atomic<int64_t> longest{0};  // nanoseconds
    std::atomic<int64_t> began{0};    // nanoseconds of the clock; 0: no pass
  };
  // On the loop's thread. Never null.
  void show_passes(std::shared_ptr<Passes> passes) { passes_ = std::move(passes); }

  // Any thread: the longest time between two checks of the descriptors since the loop was created,
  // including the current pass. Sleep during a check does not count; time for which the thread is
  // preempted does.
  [[nodiscard]] Duration longest_pass() const { return longest_pass(*passes_); }
  [[nodiscard]] static Duration longest_pass(const Passes& passes);

 private:
  struct Entry {
    int fd = -1;
    Callback callback;
  };
  struct Pending {
    uint64_t id = 0;
    std::function<void()> callback;
  };

  struct Pass {
    bool found = false;  // an event, posted work or a timer
    bool busy = false;   // the poller has more
    TimePoint ended;
  };

  EventLoop(const Clock& clock, Fd epoll, Fd wake)
      : clock_(clock), epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  Pass pass(bool poll_only);
  bool run_posted();
  bool run_due_timers(TimePoint begun);
  bool wait(bool poll_only, TimePoint& looked);

  const Clock& clock_;
  Fd epoll_;
  Fd wake_;
  Poller poller_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;
  std::multimap<TimePoint, Pending> timers_;
  std::unordered_map<uint64_t, std::multimap<TimePoint, Pending>::iterator> timer_by_id_;

  Linger linger_{std::chrono::microseconds(50)};

  std::shared_ptr<Passes> passes_ = std::make_shared<Passes>();

  std::mutex mutex_;  // guards posted_ and stopped_
  std::deque<std::function<void()>> posted_;
  bool stopped_ = false;
};

}  // namespace vrdma::base
