#include "vrdmad/broker/bounded.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/cpu_meter.h"

namespace vrdma::vrdmad {

namespace {
constexpr unsigned kMostIdle = 4;
constexpr std::chrono::seconds kIdle{1};
constexpr unsigned kLooks = 8;  // that find a thread asleep, one after the other
constexpr auto kBetweenLooks = Bounded::kPatience / 10;

// Whether a thread of this process is in state D (proc(5)): only a fatal signal, if any, wakes it.
bool sleeps_in_kernel(pid_t thread) {
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), stat);
  const size_t name = stat.rfind(')');
  return name != std::string::npos && stat.compare(name, 3, ") D") == 0;
}

}  // namespace

struct Bounded::Job {
  uint64_t netns = 0;
  std::function<void()> run;
  bool pays = true;
  std::condition_variable changed;
  pid_t thread = 0;  // runs the job
  bool done = false, late = false;
};

struct Bounded::Shared {
  struct Netns {
    unsigned hung = 0;          // hung threads
    base::TimePoint paid_at{};  // all that its processes cost
  };
  std::mutex mutex;
  std::condition_variable wanted;
  std::deque<std::shared_ptr<Job>> jobs;
  std::map<uint64_t, Netns> late;  // namespaces with hung threads or a debt
  size_t most_late = 16;           // when there are as many, those without either are removed
  unsigned idle = 0;
  bool stopped = false;

  // Namespaces end, and never ask again.
  Netns& late_one(uint64_t netns) {
    if (late.size() >= most_late) {
      std::erase_if(late, [now = base::Clock::steady().now()](const auto& one) {
        return one.second.hung == 0 && one.second.paid_at <= now;
      });
      most_late = 2 * late.size() + 16;
    }
    return late[netns];
  }
  base::Duration closed_for(uint64_t netns) {
    const auto it = late.find(netns);
    if (it == late.end()) return {};
    if (it->second.hung > 0) return kPatience;
    const auto now = base::Clock::steady().now();
    const base::Duration left = it->second.paid_at - kPart * kAtOnce - now;
    if (left.count() > 0) return left;
    if (it->second.paid_at <= now) late.erase(it);
    return {};
  }
  void pay(uint64_t netns, base::Duration used) {
    if (used <= kFree) return;
    base::TimePoint& paid_at = late_one(netns).paid_at;
    paid_at = std::max(paid_at, base::Clock::steady().now()) + kPart * used;
  }
};

Bounded::Bounded() : shared_(std::make_shared<Shared>()) {}

Bounded::~Bounded() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->wanted.notify_all();
}

base::Duration Bounded::closed_for(uint64_t netns) {
  const std::lock_guard lock(shared_->mutex);
  return shared_->closed_for(netns);
}

bool Bounded::run(uint64_t netns, std::function<void()> run, bool pays) {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  if (shared.closed_for(netns).count() > 0) return false;
  const auto job = std::make_shared<Job>();
  job->netns = netns;
  job->run = std::move(run);
  job->pays = pays;
  if (shared.jobs.size() >= shared.idle) {
    try {
      std::thread(work, shared_).detach();
    } catch (const std::system_error&) {
      return false;
    }
  }
  shared.jobs.push_back(job);
  shared.wanted.notify_one();
  const auto is_done = [&] { return job->done; };
  const auto begun = base::Clock::steady().now();
  // The thread may wait for a moment each: for the disk, or for a lock of a process that is busy.
  unsigned slept = 0;
  for (auto patience = kPatience; !job->changed.wait_for(lock, patience, is_done);
       patience = kBetweenLooks) {
    slept = job->thread != 0 && sleeps_in_kernel(job->thread) ? slept + 1 : 0;
    if (slept == kLooks || base::Clock::steady().now() - begun > kLongest) break;
  }
  if (job->done) return true;
  job->late = true;
  ++shared.late_one(netns).hung;
  return false;
}

void Bounded::work(const std::shared_ptr<Shared>& shared) {
  ::pthread_setname_np(::pthread_self(), "identity");
  std::unique_lock lock(shared->mutex);
  for (;;) {
    ++shared->idle;
    shared->wanted.wait_for(lock, kIdle, [&] { return shared->stopped || !shared->jobs.empty(); });
    --shared->idle;
    if (shared->jobs.empty()) return;  // stopped, or idle for kIdle
    const auto job = std::move(shared->jobs.front());
    shared->jobs.pop_front();
    job->thread = ::gettid();
    lock.unlock();
    const base::Duration begun = base::thread_cpu_time();
    job->run();
    job->run = nullptr;
    const base::Duration used = base::thread_cpu_time() - begun;
    lock.lock();
    if (job->pays) shared->pay(job->netns, used);
    job->done = true;
    job->changed.notify_one();
    if (job->late) {
      Shared::Netns& netns = shared->late[job->netns];
      --netns.hung;
      netns.paid_at =
          std::max(netns.paid_at, base::Clock::steady().now() + kPart * kAtOnce + kPenalty);
    }
    if (shared->idle >= kMostIdle || shared->stopped) return;
  }
}

}  // namespace vrdma::vrdmad
