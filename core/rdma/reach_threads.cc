#include "core/rdma/reach_threads.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace vrdma::rdma {

namespace {

constexpr auto kIdle = std::chrono::seconds(1);
constexpr auto kLinger = std::chrono::microseconds(50);
constexpr auto kScarce = std::chrono::milliseconds(10);

std::atomic<unsigned> threads_in_total = 0;

}  // namespace

struct ReachThreads::Shared {
  Shared(std::shared_ptr<base::CpuMeter> pays, unsigned limit,
         std::shared_ptr<ReachCounters> counts)
      : payer(std::move(pays)), most(limit), counters(std::move(counts)) {}
  const std::shared_ptr<base::CpuMeter> payer;
  const unsigned most;
  const std::shared_ptr<ReachCounters> counters;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Turn> turns;
  std::atomic<bool> looked_for = false;  // whoever lingers need not go on
  bool stopped = false;
  bool held = false;     // no turn may begin yet, and one thread waits for that
  bool lingers = false;  // one of the idle ones does
  unsigned threads = 0, idle = 0;
};

// Nothing is copied into the new table, so it holds no reference to a socket at any moment.
ReachThreads::Descriptors::Descriptors() {
  const bool alone = ::syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
  // Without it the thread could neither reach memory nor wake a loop. So its turns wait until the
  // system has a file or memory for it again.
  for (;; std::this_thread::sleep_for(kScarce)) {
    daemon_ = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (daemon_.valid()) break;
  }
  // So that no memory file becomes this thread's standard error.
  while (alone && ::dup(daemon_.get()) >= 0 && ::fcntl(STDERR_FILENO, F_GETFD) < 0) {
  }
}

base::Fd ReachThreads::Descriptors::take(int number) const {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, daemon_.get(), number, 0)));
}

uint64_t ReachThreads::Descriptors::next_serial() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

int ReachThreads::Descriptors::keep(int number, uint64_t serial) {
  for (const Kept& kept : kept_)
    if (kept.serial == serial) return kept.fd.get();
  base::Fd fd = take(number);
  if (!fd.valid()) return -1;
  Kept& place = kept_[oldest_++ % kept_.size()];
  place = {serial, std::move(fd)};
  return place.fd.get();
}

ReachThreads::ReachThreads(std::shared_ptr<base::CpuMeter> payer, unsigned most,
                           std::shared_ptr<ReachCounters> counters)
    : shared_(std::make_shared<Shared>(std::move(payer), most, std::move(counters))) {}

ReachThreads::~ReachThreads() {
  std::deque<Turn> dropped;  // not under the lock: they own what may come back here
  const std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  dropped.swap(shared_->turns);
  shared_->changed.notify_all();
}

unsigned ReachThreads::count() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->threads;
}

const ReachCounters& ReachThreads::counters() const { return *shared_->counters; }

// `shared`'s mutex is held, and there may be one more.
void ReachThreads::start(const std::shared_ptr<Shared>& shared) {
  if (shared->threads >= shared->most || (shared->threads > 0 && threads_in_total >= kMostInTotal))
    return;
  try {
    // Detached: it may hang until the process whose memory it reaches ends.
    std::thread(&ReachThreads::work, shared).detach();
    ++shared->threads;
    ++threads_in_total;
  } catch (const std::system_error&) {
  }
}

bool ReachThreads::run(Turn turn) {
  bool wake = false;
  {
    const std::lock_guard lock(shared_->mutex);
    Shared& shared = *shared_;
    if (shared.turns.size() >= shared.idle && !shared.held) start(shared_);
    if (shared.threads == 0) return false;
    shared.turns.push_back(std::move(turn));
    shared.looked_for.store(true, std::memory_order_release);
    wake = !shared.lingers || shared.turns.size() > 1;
  }
  if (wake) shared_->changed.notify_one();
  return true;
}

void ReachThreads::count_out(Shared& shared) {
  --shared.threads;
  --threads_in_total;
}

// What waits for a thread of `from`'s must not wait for one that has left.
bool ReachThreads::lend(Here& here) const {
  Shared& to = *shared_;
  if (here.counted == shared_) return true;
  {
    const std::lock_guard lock(to.mutex);
    if (to.stopped || to.held || to.threads >= to.most ||
        (to.threads > 0 && threads_in_total >= kMostInTotal) ||
        (to.payer != nullptr && to.payer->wait(base::Clock::steady().now()).count() > 0))
      return false;
    ++to.threads;
  }
  const auto from = std::exchange(here.counted, shared_);
  const std::lock_guard lock(from->mutex);
  --from->threads;
  if (!from->stopped && from->turns.size() > from->idle && !from->held) start(from);
  return true;
}

// false: meanwhile there are as many as can be, and this one ends.
bool ReachThreads::come_home(Here& here, const std::shared_ptr<Shared>& home) {
  if (here.counted == home) return true;
  {
    const std::lock_guard lock(here.counted->mutex);
    --here.counted->threads;
  }
  here.counted = home;
  const std::lock_guard lock(home->mutex);
  ++home->threads;
  if (home->threads <= home->most) return true;
  count_out(*home);
  return false;
}

void ReachThreads::linger_a_moment(Shared& shared, std::unique_lock<std::mutex>& lock,
                                   base::Linger& linger) {
  shared.lingers = true;
  shared.looked_for.store(false, std::memory_order_relaxed);
  lock.unlock();
  while (!shared.looked_for.load(std::memory_order_acquire) && linger.again()) continue;
  lock.lock();
  shared.lingers = false;
}

bool ReachThreads::take(const std::shared_ptr<Shared>& of, Turn* turn, base::Linger& linger) {
  Shared& shared = *of;
  bool has_held = false;
  std::unique_lock lock(shared.mutex);
  for (;;) {
    ++shared.idle;
    if (shared.turns.empty() && !shared.stopped && !shared.lingers)
      linger_a_moment(shared, lock, linger);
    const bool woken = shared.changed.wait_for(
        lock, kIdle, [&] { return shared.stopped || (!shared.turns.empty() && !shared.held); });
    --shared.idle;
    if (!woken || shared.stopped) {
      count_out(shared);
      return false;
    }
    const auto wait = shared.payer != nullptr ? shared.payer->wait(base::Clock::steady().now())
                                              : base::Duration(0);
    if (wait.count() == 0) break;
    shared.held = has_held = true;
    shared.changed.wait_for(lock, wait, [&] { return shared.stopped; });
    shared.held = false;
  }
  *turn = std::move(shared.turns.front());
  shared.turns.pop_front();
  shared.counters->turns.fetch_add(1, std::memory_order_relaxed);
  // Who was told of the others may have gone on sleeping, because they were held.
  if (!shared.turns.empty() && shared.idle > 0) shared.changed.notify_one();
  // Nor was a thread made for them.
  if (has_held)
    for (size_t served = shared.idle; served < shared.turns.size(); ++served) start(of);
  return true;
}

void ReachThreads::work(const std::shared_ptr<Shared>& shared) {
  ::pthread_setname_np(::pthread_self(), "reach");
  Descriptors descriptors;
  base::Linger linger(kLinger);
  Here here{descriptors, nullptr, shared};
  base::Duration paid{};  // all that the thread has used, from its beginning
  for (;;) {
    Turn turn;
    if (!take(shared, &turn, linger)) return;
    here.payer = shared->payer;
    turn(here);
    turn = nullptr;
    if (const auto payer = std::exchange(here.payer, nullptr)) {
      const base::Duration used = base::thread_cpu_time();
      payer->spend(used - std::exchange(paid, used));
    }
    if (!come_home(here, shared)) return;
    linger.begin();
  }
}

}  // namespace vrdma::rdma
