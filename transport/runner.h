// Who of those that have work for a worker is served next: deficit round robin in three levels.
//
// Tenants are served in turn, the vdevices of a tenant in turn, and the runnables of a vdevice
// (send queues, sessions with requests) in turn. Each level measures what was done in bytes: those
// that were moved, plus kRequestCost for each request; a turn that takes long costs as many bytes
// as are moved in that time at kTurnBytes per kTurnTime. So a flood of small requests and a few
// large ones are equal.
//
// A turn is one vdevice's. It ends after kTurnBytes or kTurnTime, whichever comes first; a longer
// request is continued in a later turn. What a turn exceeds its quantum by is debt, which is kept
// while its owner is idle; credit is not. Who becomes active stands behind those that already are.
//
// A lane may have a meter, which pays for the processor time of its turns. When that says to wait,
// the lane rests: it leaves the order, with all that is active in it, and a timer brings it back.
//
// Runs on one event loop as its poller: after kTurnTime, or when all that is active has nothing to
// do but to look again, the loop serves descriptors, posted work and timers. With nothing active
// the loop sleeps. All calls are the loop's thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/cpu_meter.h"
#include "core/base/event_loop.h"

namespace vrdma::transport {

constexpr uint64_t kTurnBytes = 64u << 10;
constexpr auto kTurnTime = std::chrono::microseconds(50);
constexpr uint64_t kRequestCost = 1024;  // bytes

// What is left of a turn. Whoever runs says what it does, and stops when the turn is over.
class Turn {
 public:
  // Of `bytes` bytes, no longer than to `end`.
  Turn(uint64_t bytes, base::TimePoint end, const base::Clock& clock)
      : left_(static_cast<int64_t>(bytes)), end_(end), clock_(clock) {}

  void spend(uint64_t bytes) { spent_ += bytes; }
  // After a request that may have taken long.
  void spend_time(base::Duration time);
  // The clock is looked at only now and then: a small request takes less than a look.
  [[nodiscard]] bool over();
  [[nodiscard]] base::TimePoint now() const { return clock_.now(); }

 private:
  friend class Runner;
  static constexpr uint64_t kLook = 8 * kRequestCost;

  int64_t left_;         // of the runnable that runs
  uint64_t spent_ = 0;   // by it
  uint64_t unseen_ = 0;  // spent by those before it since the last look at the clock
  uint64_t looked_ = 0;  // of spent_
  bool late_ = false;
  base::TimePoint end_;
  const base::Clock& clock_;
};

class Runnable;
class Lane;

class Runner {
 public:
  explicit Runner(base::EventLoop& loop) : Runner(loop, loop.clock()) {}
  // Turns that go by another clock than the loop's timers, which must outlive it.
  Runner(base::EventLoop& loop, const base::Clock& clock,
         base::CpuStopwatch::Used used = &base::thread_cpu_time);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  void activate(Runnable* runnable);
  void remove(Runnable* runnable);  // also while it runs
  [[nodiscard]] base::EventLoop& loop() const { return loop_; }
  // How long an empty queue is looked at again before its worker lets go. A worker that spins
  // beside two spinning programs on two cores would take turns of milliseconds with them.
  [[nodiscard]] base::Duration spin() const { return spin_; }

  // The sessions (rdma::Context::id) for which something was done since the last call, each at
  // least once.
  [[nodiscard]] std::vector<uint32_t> take_worked();
  // `first` is called when there is one.
  void on_work(std::function<void()> first) { on_work_ = std::move(first); }

  // What the loop's poller does, from `now` on; `now` becomes the time of its end. True: something
  // is active.
  bool pass(base::TimePoint& now);

 private:
  friend class Lane;
  friend class Runnable;

  // A member of one level's round. In a list of its active siblings, the next to be served first.
  struct Flow {
    Flow* before_ = nullptr;
    Flow* after_ = nullptr;
    int64_t deficit_ = 0;
    bool active_ = false;
    void charge(uint64_t cost) { deficit_ -= static_cast<int64_t>(cost); }
  };
  class Round {
   public:
    [[nodiscard]] bool empty() const { return first_ == nullptr; }
    void enter(Flow& flow);
    void leave(Flow& flow);
    void to_end(Flow& flow);
    Flow& next();  // the first with a deficit above zero

   private:
    void link_last(Flow& flow);
    void unlink(Flow& flow);
    Flow* first_ = nullptr;
    Flow* last_ = nullptr;
  };
  struct Tenant : Flow {
    Round lanes;
    size_t members = 0;
  };

  void deactivate(Runnable& runnable);
  void note_work(Runnable& runnable);
  void enter(Lane& lane);  // with something active, the order
  void leave(Lane& lane);  // it
  void pay(Lane& lane, base::TimePoint begun, base::TimePoint now);
  void rest(Lane& lane, base::Duration time);
  // One turn of `lane`. Its cost; 0: it did nothing but look.
  uint64_t take_turn(Lane& lane, base::TimePoint now);

  base::EventLoop& loop_;
  const base::Clock& clock_;
  base::CpuStopwatch stopwatch_;
  base::Duration spin_;
  std::map<std::string, Tenant> tenants_;
  Round round_;
  size_t active_ = 0;            // runnables, of lanes that do not rest
  Runnable* running_ = nullptr;  // none: it was removed while it ran
  std::vector<uint32_t> worked_;
  uint32_t look_ = 1;  // at worked_
  std::function<void()> on_work_;
};

// A vdevice's place in the order. Outlives its runnables; the runner outlives it.
class Lane : private Runner::Flow {
 public:
  Lane(Runner& runner, const std::string& tenant);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  [[nodiscard]] Runner& runner() const { return runner_; }
  [[nodiscard]] base::EventLoop& loop() const { return runner_.loop(); }
  // Who pays for its turns from now on; outlives it.
  void set_meter(base::CpuMeter* meter) { meter_ = meter; }
  [[nodiscard]] bool rests() const { return rest_.active(); }

  // Makes what was stored before `since`, in the past, visible to all processors, and what they
  // stored visible here (base::AsymmetricFence::heavy), unless that was done since. It interrupts
  // every processor that runs a client, so a lane may do it once in fence_interval();
  // false: it may not yet.
  [[nodiscard]] bool fence_since(base::TimePoint since);
  [[nodiscard]] base::Duration fence_interval() const { return fence_interval_; }
  void set_fence_interval(base::Duration interval) { fence_interval_ = interval; }

 private:
  friend class Runner;
  base::TimePoint fenced_{};
  base::Duration fence_interval_ = std::chrono::milliseconds(1);
  Runner& runner_;
  std::map<std::string, Runner::Tenant>::iterator tenant_;
  Runner::Round runnables_;
  size_t members_active_ = 0;  // of runnables_
  base::CpuMeter* meter_ = nullptr;
  base::EventLoop::Timer rest_;
};

// Something that has work now and then. Must not be active when it is destroyed: see
// Runner::remove().
class Runnable : private Runner::Flow {
 public:
  explicit Runnable(Lane& lane) : lane_(lane) {}
  virtual ~Runnable() = default;
  Runnable(const Runnable&) = delete;
  Runnable& operator=(const Runnable&) = delete;
  // Works until the turn is over or there is nothing to do. False: nothing until it is activated
  // again. True without having spent anything: it only looks whether there is something.
  virtual bool run(Turn& turn) = 0;

  // The session (rdma::Context::id) whose runnable this process runs now; 0: none, or it has none.
  // For a report of a crash: any thread, and a signal handler, may read it.
  [[nodiscard]] static uint32_t session_in_hand() {
    return session_in_hand_.load(std::memory_order_relaxed);
  }

 protected:
  [[nodiscard]] Lane& lane() const { return lane_; }
  [[nodiscard]] bool is_active() const { return active_; }
  void set_session(uint32_t session) { session_ = session; }

 private:
  friend class Runner;
  static inline std::atomic<uint32_t> session_in_hand_ = 0;
  Lane& lane_;
  uint32_t session_ = 0;
  uint32_t noted_ = 0;  // the runner's look at which it is in worked_
  bool again_ = false;  // activated while it ran
};

}  // namespace vrdma::transport
