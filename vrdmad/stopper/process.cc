#include "vrdmad/stopper/process.h"

#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/ipc/socket.h"
#include "vrdmad/broker/child_process.h"
#include "vrdmad/stopper/hold.h"
#include "vrdmad/stopper/wire.h"

namespace vrdma::vrdmad::stopper {

namespace {

using base::Fd;
using ipc::Reached;

// For an earlier hold of the same process to end.
constexpr auto kSuccession = std::chrono::milliseconds(300);

struct Job {
  Order order;
  Fd pidfd, arena;
};

struct Account {
  std::deque<Job> jobs;
  unsigned threads = 0;
};

uint64_t processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Process {
 public:
  Process(Fd socket, Fd daemon) : socket_(std::move(socket)), daemon_(std::move(daemon)) {}

  void run() {
    Job job;
    while (next(&job)) {
      const std::lock_guard lock(mutex_);
      const uint64_t account = job.order.account;
      accounts_[account].jobs.push_back(std::move(job));
      want_thread(account);
    }
    // The daemon has ended. Programs may finish their current exchange.
    leaving_ = true;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 2 * Hold::kHardest, [this] { return threads_ == 0; });
    ::_exit(0);
  }

 private:
  // False: the daemon has ended.
  bool next(Job* job) {
    if (!wait_for_message(socket_, daemon_)) return false;
    std::vector<Fd> fds;
    const auto received = ipc::receive_message(socket_.get(), &job->order, sizeof job->order, &fds);
    if (!received || fds.size() != 2) return false;
    job->pidfd = std::move(fds[0]);
    job->arena = std::move(fds[1]);
    return true;
  }

  void send(const Report& report) {
    // Fails only if the daemon has ended; then the main thread exits.
    (void)ipc::send_message(socket_.get(), &report, sizeof report);
  }

  // Does not block, so that threads are not held because the daemon does not read. False: it was
  // not sent.
  bool offer(const Report& report) {
    return ::send(socket_.get(), &report, sizeof report, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           sizeof report;
  }

  // mutex_ is held.
  void want_thread(uint64_t number) {
    Account& account = accounts_[number];
    if (account.jobs.empty() || account.threads >= kHoldsPerAccount) return;
    if (threads_ < kHolds) {
      try {
        std::thread([this, number, job = std::make_shared<Job>(std::move(account.jobs.front()))] {
          serve(*job);
          const std::lock_guard lock(mutex_);
          over(number);
        }).detach();
        account.jobs.pop_front();
        ++account.threads;
        ++threads_;
        return;
      } catch (const std::system_error&) {
      }
    }
    // The limit is reached, or no thread can be created.
    Report refused;
    refused.id = account.jobs.front().order.id;
    refused.stage = Stage::kAnswered;
    refused.reached = Reached::kRefused;
    send(refused);
    refused.stage = Stage::kFinished;
    send(refused);
    account.jobs.pop_front();
  }

  // mutex_ is held.
  void over(uint64_t number) {
    --threads_;
    Account& account = accounts_[number];
    --account.threads;
    want_thread(number);
    if (account.threads == 0 && account.jobs.empty()) accounts_.erase(number);
    changed_.notify_all();
  }

  void serve(Job& job) {
    const uint64_t begun = processor_time();
    const pid_t pid = job.order.peer.pid;
    Report report;
    report.id = job.order.id;
    report.stage = Stage::kAnswered;
    const bool alone = wait_for_predecessor(pid);
    if (!alone) {
      report.reached = Reached::kRefused;
      send(report);
    } else {
      hold(job, &report);
      const std::lock_guard lock(mutex_);
      held_.erase(pid);
      changed_.notify_all();
    }
    report.stage = Stage::kFinished;
    report.processor_ns = processor_time() - begun;
    send(report);
  }

  // Two concurrent holds of one process would each refuse it as traced.
  bool wait_for_predecessor(pid_t pid) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kSuccession, [&] { return !held_.contains(pid); })) return false;
    held_.insert(pid);
    return true;
  }

  void hold(Job& job, Report* report) {
    auto process = rdma::find_peer(job.order.peer, std::move(job.pidfd));
    if (!process) {
      report->reached = Reached::kOther;
      return send(*report);
    }
    auto hold = Hold::make(std::move(*process), job.arena, job.order.thread);
    if (!hold) {
      report->reached = Reached::kOther;
      return send(*report);
    }
    report->serial = ++serial_ & (ipc::kHoldSerials - 1);
    if (report->serial == 0) report->serial = ++serial_ & (ipc::kHoldSerials - 1);
    report->reached = hold->stop(report->serial);
    const bool told = offer(*report);
    if (told && report->reached == Reached::kNot) hold->keep([this] { return leaving_.load(); });
    hold->let_go();
    if (told) return;
    if (report->reached == Reached::kNot) report->reached = Reached::kRefused;
    send(*report);
  }

  const Fd socket_;
  const Fd daemon_;  // a pidfd
  std::atomic<bool> leaving_ = false;
  std::atomic<uint32_t> serial_ = 0;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::map<uint64_t, Account> accounts_;  // accounts with jobs or threads
  std::set<pid_t> held_;                  // by pid
  unsigned threads_ = 0;
};

constexpr uint64_t bit(unsigned capability) { return uint64_t{1} << capability; }

// To read /proc/PID/task/TID/syscall, which only its owner may read. A service manager may have
// left only the stronger capability that the daemon itself needs.
uint64_t needed_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  (void)::syscall(SYS_capget, &header, data);
  const bool reads = (data[0].permitted & bit(CAP_DAC_READ_SEARCH)) != 0;
  return bit(CAP_SYS_PTRACE) | bit(reads ? CAP_DAC_READ_SEARCH : CAP_DAC_OVERRIDE);
}

}  // namespace

void serve(Fd socket, const std::function<void()>& confine) {
  Fd kept = become_child("vrdmad-stopper", std::move(socket), needed_capabilities());
  Fd daemon = open_parent();
  confine();
  Process(std::move(kept), std::move(daemon)).run();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::stopper
