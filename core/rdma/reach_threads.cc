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

std::atomic<unsigned> threads_in_total = 0;

}  // namespace

struct ReachThreads::Shared {
  Shared(std::shared_ptr<base::CpuMeter> pays, unsigned limit)
      : payer(std::move(pays)), most(limit) {}
  const std::shared_ptr<base::CpuMeter> payer;
  const unsigned most;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Turn> turns;
  bool stopped = false;
  bool held = false;  // no turn may begin yet, and one thread waits for that
  unsigned threads = 0, idle = 0;
};

// Nothing is copied into the new table, so it holds no reference to a socket at any moment.
ReachThreads::Descriptors::Descriptors() {
  const bool alone = ::syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) == 0;
  daemon_ = base::Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  // So that no memory file becomes this thread's standard error.
  while (alone && daemon_.valid() && ::dup(daemon_.get()) >= 0 &&
         ::fcntl(STDERR_FILENO, F_GETFD) < 0) {
  }
}

base::Fd ReachThreads::Descriptors::take(int number) const {
  return base::Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, daemon_.get(), number, 0)));
}

ReachThreads::ReachThreads(std::shared_ptr<base::CpuMeter> payer, unsigned most)
    : shared_(std::make_shared<Shared>(std::move(payer), most)) {}

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

bool ReachThreads::run(Turn turn) {
  const std::lock_guard lock(shared_->mutex);
  const bool wanted = shared_->turns.size() >= shared_->idle && !shared_->held &&
                      shared_->threads < shared_->most &&
                      (shared_->threads == 0 || threads_in_total < kMostInTotal);
  if (wanted) {
    try {
      // Detached: it may hang until the process whose memory it reaches ends.
      std::thread(&ReachThreads::work, shared_).detach();
      ++shared_->threads;
      ++threads_in_total;
    } catch (const std::system_error&) {
      if (shared_->threads == 0) return false;
    }
  }
  shared_->turns.push_back(std::move(turn));
  shared_->changed.notify_one();
  return true;
}

bool ReachThreads::take(Shared& shared, Turn* turn) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    ++shared.idle;
    const bool woken = shared.changed.wait_for(
        lock, kIdle, [&] { return shared.stopped || (!shared.turns.empty() && !shared.held); });
    --shared.idle;
    if (!woken || shared.stopped) {
      --shared.threads;
      --threads_in_total;
      return false;
    }
    const auto wait = shared.payer != nullptr ? shared.payer->wait(base::Clock::steady().now())
                                              : base::Duration(0);
    if (wait.count() == 0) break;
    shared.held = true;
    shared.changed.wait_for(lock, wait, [&] { return shared.stopped; });
    shared.held = false;
  }
  *turn = std::move(shared.turns.front());
  shared.turns.pop_front();
  // Who was told of the others may have gone on sleeping, because they were held.
  if (!shared.turns.empty() && shared.idle > 0) shared.changed.notify_one();
  return true;
}

void ReachThreads::work(const std::shared_ptr<Shared>& shared) {
  ::pthread_setname_np(::pthread_self(), "reach");
  const Descriptors descriptors;
  base::Duration paid{};  // all that the thread has used, from its beginning
  for (;;) {
    Turn turn;
    if (!take(*shared, &turn)) return;
    Here here{descriptors, shared->payer};
    turn(here);
    if (here.payer == nullptr) continue;
    const base::Duration used = base::thread_cpu_time();
    here.payer->spend(used - std::exchange(paid, used));
  }
}

}  // namespace vrdma::rdma
