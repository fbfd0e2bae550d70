#include "vrdmad/broker/intake_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/ipc/socket.h"
#include "vrdmad/broker/child_process.h"
#include "vrdmad/broker/intake_wire.h"

namespace vrdma::vrdmad::intake {

namespace {

using base::Fd;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// To become another user, and to drop the rest: `confine` does.
constexpr uint64_t kForTheStart =
    uint64_t{1} << CAP_SETUID | uint64_t{1} << CAP_SETGID | uint64_t{1} << CAP_SETPCAP;
constexpr int kRetry = 50;  // ms, while no thread can be created
static_assert(kMostVerdicts <= ipc::kMaxFds);

struct Job {
  Order order;
  Fd subject;
};

struct Account {
  std::deque<Job> jobs;
  unsigned threads = 0;
};

Verdict judge(const Fd& fd) {
  Verdict verdict;
  struct statx status {};
  // AT_STATX_DONT_SYNC returns what the kernel has cached, without a request to a FUSE server.
  if (::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status) == 0) {
    verdict.device = uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor;
    verdict.inode = status.stx_ino;
  } else {
    verdict.error = static_cast<uint32_t>(errno);
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals >= 0) {
    verdict.kind = Kind::kMemory;
    verdict.passed = seals == kSeals ? 1 : 0;
    return verdict;
  }
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_PACKET)
    return verdict;
  verdict.kind = Kind::kPacketSocket;
  size = sizeof verdict.netns_cookie;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_NETNS_COOKIE, &verdict.netns_cookie, &size) != 0)
    verdict.netns_cookie = 0;
  return verdict;
}

// Takes the unread messages or connections out of a socket of the daemon, whose last descriptor
// this may be, so that its close has nothing left to close slowly. The caller closes what was
// taken.
void drain(const Fd& socket, std::vector<Fd>* taken) {
  constexpr int kMost = 100'000;  // more than a backlog and a receive buffer hold
  int domain = 0, listens = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return;
  size = sizeof listens;
  (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
  for (int i = 0; i < kMost; ++i) {
    if (listens != 0) {
      Fd client(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!client.valid()) return;
      taken->push_back(std::move(client));
      continue;
    }
    auto message = ipc::receive_any(socket.get(), nullptr, 0, MSG_DONTWAIT);
    if (message.error == ECONNRESET) continue;
    if (message.error != 0 || (message.length == 0 && message.alone))
      return;  // nothing left, or the end of file
    std::move(message.fds.begin(), message.fds.end(), std::back_inserter(*taken));
  }
}

void receive(int daemon, Job& job) {
  Report report;
  report.id = job.order.id;
  report.stage = Stage::kReceived;
  const ipc::Received received =
      ipc::receive_any(job.subject.get(), report.bytes.data(), report.bytes.size(), MSG_DONTWAIT);
  report.error = static_cast<uint32_t>(received.error);
  if (received.length >= 0) {
    report.length = static_cast<uint32_t>(received.length);
    report.truncated = received.truncated ? 1 : 0;
    report.sender = {received.sender.pid, received.sender.uid, received.sender.gid};
  }
  job.subject.reset();  // the daemon has a copy, and may have to close it
  report.count = static_cast<uint32_t>(received.fds.size());
  std::vector<int> passed;
  for (size_t i = 0; i < std::min(received.fds.size(), kMostVerdicts); ++i) {
    report.verdicts[i] = judge(received.fds[i]);
    if (report.verdicts[i].passed != 0) passed.push_back(received.fds[i].get());
  }
  // Fails only if the daemon has ended; then the main thread exits.
  (void)ipc::send_message(daemon, &report, sizeof report, passed);
}  // closing the descriptors may take long

class Process {
 public:
  explicit Process(Fd socket) : socket_(std::move(socket)) {}

  void run() {
    for (;;) {
      if (!wait()) continue;
      Job job;
      if (!next(&job)) leave();
      const std::lock_guard lock(mutex_);
      const uint64_t account = job.order.account;
      accounts_[account].jobs.push_back(std::move(job));
      want_thread(account);
    }
  }

 private:
  // The daemon has ended. Hung threads may keep this process alive, but no connection of a tenant.
  [[noreturn]] void leave() {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, account] : accounts_)
      for (const Job& job : account.jobs) ::shutdown(job.subject.get(), SHUT_RDWR);
    ::_exit(0);
  }

  // Waits for an order, or while accounts lack a thread, at most kRetry. False: the time has
  // passed.
  bool wait() {
    pollfd ready{socket_.get(), POLLIN, 0};
    bool hungry = false;
    {
      const std::lock_guard lock(mutex_);
      hungry = !hungry_.empty();
    }
    if (!hungry || ::poll(&ready, 1, kRetry) != 0) return true;
    const std::lock_guard lock(mutex_);
    for (auto waiting = std::exchange(hungry_, {}); !waiting.empty(); waiting.pop_front())
      want_thread(waiting.front());
    return false;
  }

  bool next(Job* job) {
    auto message = ipc::receive_any(socket_.get(), &job->order, sizeof job->order, 0);
    if (message.length != sizeof job->order) return false;
    if (!message.fds.empty()) job->subject = std::move(message.fds.front());
    return true;
  }

  // mutex_ is held.
  void want_thread(uint64_t number) {
    const auto it = accounts_.find(number);
    if (it == accounts_.end() || it->second.threads >= kThreadsPerAccount) return;
    if (threads_ < kThreads) {
      try {
        std::thread([this, number] { work(number); }).detach();
        ++threads_;
        ++it->second.threads;
        return;
      } catch (const std::system_error&) {
      }
    }
    if (it->second.threads == 0) hungry_.push_back(number);
  }

  void work(uint64_t number) {
    for (;;) {
      Job job;
      {
        const std::lock_guard lock(mutex_);
        const auto it = accounts_.find(number);
        if (it->second.jobs.empty()) {
          --threads_;
          if (--it->second.threads == 0) accounts_.erase(it);
          return;
        }
        job = std::move(it->second.jobs.front());
        it->second.jobs.pop_front();
      }
      std::vector<Fd> taken;
      if (job.order.task == Task::kReceive)
        receive(socket_.get(), job);
      else
        drain(job.subject, &taken);
      job.subject.reset();
      taken.clear();
      Report over;
      over.id = job.order.id;
      (void)ipc::send_message(socket_.get(), &over, sizeof over);
    }
  }

  const Fd socket_;
  std::mutex mutex_;
  std::map<uint64_t, Account> accounts_;  // accounts with jobs or threads
  std::deque<uint64_t> hungry_;           // accounts with jobs but no thread
  unsigned threads_ = 0;
};

}  // namespace

void serve(Fd socket, const std::function<void()>& confine) {
  Fd kept = become_child("vrdmad-intake", std::move(socket), kForTheStart);
  confine();
  Process(std::move(kept)).run();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::intake
