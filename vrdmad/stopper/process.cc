#include "vrdmad/stopper/process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/token_bucket.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/helper_client.h"
#include "vrdmad/stopper/hold.h"
#include "vrdmad/stopper/wire.h"

namespace vrdma::vrdmad::stopper {

namespace {

using base::Fd;
using ipc::Reached;

// For an earlier hold of the same process to end.
constexpr auto kSuccession = std::chrono::milliseconds(300);
constexpr off_t kPage = 4096;  // of the arena, with the HoldWords

struct Job {
  Order order;
  Fd pidfd, arena;
};

struct Account {
  std::deque<Job> jobs;
  unsigned threads = 0;
};

// Its own threads keep it after its end.
struct Client : HelperClient {
  Client(Fd connection, bool is_control) : HelperClient(std::move(connection), is_control) {
    if (!control) time.set(kNanosecondsASecond, kSavedUp);
  }
  std::map<uint64_t, Account> accounts;  // with jobs or threads
  std::vector<Job> refused;              // whose descriptors its next thread closes
  base::TokenBucket time;                // of the processor
  std::deque<Report> unsent;             // refusals; only the main thread
};
using ClientRef = std::shared_ptr<Client>;

// Reading from such a descriptor, or closing it, asks no foreign server. waitid(2) looks at the
// kind of the file first, and then finds no child.
bool is_pidfd(const Fd& fd) {
  siginfo_t info{};
  return ::waitid(P_PIDFD, static_cast<id_t>(fd.get()), &info, WEXITED | WNOHANG | WNOWAIT) == 0 ||
         (errno != EBADF && errno != EINVAL);
}

// With the seals of base::make_memfd(), so that the HoldWords cannot go.
bool is_arena(const Fd& fd) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  struct stat status {};
  struct statfs system {};
  return ::fcntl(fd.get(), F_GET_SEALS) == kSeals && ::fstat(fd.get(), &status) == 0 &&
         status.st_size >= kPage && ::fstatfs(fd.get(), &system) == 0 &&
         system.f_type == TMPFS_MAGIC;  // a file of huge pages may lack them
}

// Whether the pidfd is that of the process. It is a pidfd, which is_alive() alone would not tell.
bool is_of(const Fd& pidfd, pid_t pid) {
  const Fd file(
      ::open(("/proc/self/fdinfo/" + std::to_string(pidfd.get())).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 512> room{};
  const ssize_t got = file.valid() ? ::read(file.get(), room.data(), room.size() - 1) : -1;
  const std::string_view text(room.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return text.find("\nPid:\t" + std::to_string(pid) + "\n") != std::string_view::npos;
}

uint64_t processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Process {
 public:
  Process(Fd control, Fd daemon) : daemon_(std::move(daemon)) {
    clients_.push_back(std::make_shared<Client>(std::move(control), true));
  }

  void run() {
    std::vector<Ready> ready;
    while (wait(&ready)) {
      for (const Ready& each : ready) {
        if (take(each)) continue;
        if (each.client->control) return leave();
        end(each.client);
      }
      try_again();
    }
    leave();
  }

 private:
  struct Ready {
    ClientRef client;
    bool hung_up;
  };

  // The daemon has ended. Programs may finish their current exchange.
  void leave() {
    leaving_ = true;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 2 * Hold::kHardest, [this] { return threads_ == 0; });
    ::_exit(0);
  }

  // Waits for messages, ends of clients and room for refusals, or until it is time to try again.
  // False: the daemon has ended.
  bool wait(std::vector<Ready>* ready) {
    std::vector<pollfd> files;
    bool waiting = !ending_.empty();
    {
      const std::lock_guard lock(mutex_);
      for (const ClientRef& client : clients_) {
        const bool has_room =
            client->control || (client->queued < kMostQueued &&
                                may_have_more(client->queued, queued_, kMostQueuedOfAll));
        const bool reads = has_room && client->unsent.empty();
        waiting = waiting || !has_room;
        const int events = (reads ? POLLIN : 0) | (client->unsent.empty() ? 0 : POLLOUT);
        files.push_back({client->socket.get(), static_cast<short>(events), 0});
      }
    }
    files.push_back({daemon_.get(), POLLIN, 0});
    ready->clear();
    const int found = ::poll(files.data(), files.size(), waiting ? int{kHelperRetry.count()} : -1);
    if (found < 0) return errno == EINTR;
    if (files.back().revents != 0) return false;
    for (size_t i = 0; i < clients_.size(); ++i)
      if (files[i].revents != 0) ready->push_back({clients_[i], (files[i].revents & POLLHUP) != 0});
    return true;
  }

  // Takes one message, so that clients take turns. False: the client has ended, or must.
  bool take(const Ready& ready) {
    const ClientRef& client = ready.client;
    if (ready.hung_up && !client->control) return false;
    if (ready.hung_up) client->unsent.clear();
    send_unsent(*client);
    if (!client->unsent.empty()) return true;
    Job job;
    auto message =
        ipc::receive_any(client->socket.get(), &job.order, sizeof job.order, MSG_DONTWAIT);
    if (message.error == EAGAIN) return true;
    auto& fds = message.fds;
    const bool whole = message.length == sizeof job.order && !message.truncated;
    if (whole && client->control && job.order.task == Task::kAddClient && fds.size() == 1) {
      clients_.push_back(std::make_shared<Client>(std::move(fds[0]), false));
      return true;
    }
    if (!whole || job.order.task != Task::kHold || fds.size() != 2 || !is_pidfd(fds[0]) ||
        !is_arena(fds[1])) {
      client->doomed = std::move(fds);
      return false;
    }
    job.pidfd = std::move(fds[0]);
    job.arena = std::move(fds[1]);
    const std::lock_guard lock(mutex_);
    const uint64_t account = job.order.account;
    client->accounts[account].jobs.push_back(std::move(job));
    count(*client, 1);
    if (auto refused = want_thread(client, account)) {
      if (client->accounts[account].threads == 0) client->accounts.erase(account);
      client->unsent.push_back(report_of(*refused, Stage::kAnswered));
      client->unsent.push_back(report_of(*refused, Stage::kFinished));
      send_unsent(*client);
    }
    return true;
  }

  // Its holds last as long as they may. It has no more, and no other client waits for its
  // descriptors to be closed.
  void end(const ClientRef& client) {
    ::shutdown(client->socket.get(), SHUT_RDWR);  // no further message, and no thread waits for it
    {
      const std::lock_guard lock(mutex_);
      for (auto& [number, account] : client->accounts)
        for (; !account.jobs.empty(); account.jobs.pop_front())
          refuse(*client, std::move(account.jobs.front()));
    }
    std::erase(clients_, client);
    want_end(client);
  }

  void want_end(const ClientRef& client) {
    try {
      std::thread([this, client] {
        std::vector<Fd> unread = std::move(client->doomed);
        take_unread(client->socket, &unread);
        (void)take_refused(*client);
      }).detach();
    } catch (const std::system_error&) {
      ending_.push_back(client);
    }
  }

  // For ends that have no thread, and refused orders whose client has none.
  void try_again() {
    for (auto ending = std::exchange(ending_, {}); !ending.empty(); ending.pop_front())
      want_end(ending.front());
    const std::lock_guard lock(mutex_);
    for (const ClientRef& client : clients_) {
      if (client->threads > 0 || client->refused.empty()) continue;
      try {
        std::thread([this, client] { (void)take_refused(*client); }).detach();
      } catch (const std::system_error&) {
      }
    }
  }

  static Report report_of(uint64_t refused, Stage stage) {
    Report report;
    report.id = refused;
    report.stage = stage;
    report.reached = stage == Stage::kAnswered ? Reached::kRefused : Reached::kNot;
    return report;
  }

  // For the threads of the client. Fails only if it has ended.
  static void send(const Client& client, const Report& report) {
    (void)ipc::send_message(client.socket.get(), &report, sizeof report);
  }

  // Does not block, so that threads are not held because the client does not read. False: it was
  // not sent.
  static bool offer(const Client& client, const Report& report) {
    return ::send(client.socket.get(), &report, sizeof report, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           sizeof report;
  }

  static void send_unsent(Client& client) {
    while (!client.unsent.empty() && offer(client, client.unsent.front()))
      client.unsent.pop_front();
  }

  // mutex_ is held.
  void count(Client& client, int change) {
    client.queued += static_cast<unsigned>(change);
    if (!client.control) queued_ += static_cast<unsigned>(change);
  }

  // mutex_ is held. The job counts as queued until its descriptors are closed, which takes long if
  // nothing else keeps a large arena.
  static void refuse(Client& client, Job job) { client.refused.push_back(std::move(job)); }

  // Destroy them without the mutex.
  std::vector<Job> take_refused(Client& client) {
    const std::lock_guard lock(mutex_);
    count(client, -static_cast<int>(client.refused.size()));
    return std::exchange(client.refused, {});
  }

  // mutex_ is held. Returns the id of an order that is refused, because the limit is reached or no
  // thread can be created.
  std::optional<uint64_t> want_thread(const ClientRef& client, uint64_t number) {
    Account& account = client->accounts[number];
    if (account.jobs.empty() || account.threads >= kHoldsPerAccount) return std::nullopt;
    const auto job = std::make_shared<Job>(std::move(account.jobs.front()));
    account.jobs.pop_front();
    if (may_have_more(client->threads, threads_, kHolds)) {
      try {
        std::thread([this, client, number, job] { work(client, number, *job); }).detach();
        count(*client, -1);
        ++account.threads;
        ++client->threads;
        ++threads_;
        return std::nullopt;
      } catch (const std::system_error&) {
      }
    }
    refuse(*client, std::move(*job));
    return job->order.id;
  }

  void work(const ClientRef& client, uint64_t number, Job& job) {
    serve(*client, job);
    job = {};
    std::vector<uint64_t> ids;
    {
      const std::lock_guard lock(mutex_);
      --threads_;
      --client->threads;
      Account& account = client->accounts[number];
      --account.threads;
      while (const auto id = want_thread(client, number)) {
        ids.push_back(*id);
        if (account.threads > 0) break;
      }
      if (account.threads == 0) client->accounts.erase(number);
      changed_.notify_all();
    }
    (void)take_refused(*client);
    for (const uint64_t id : ids)
      for (const Stage stage : {Stage::kAnswered, Stage::kFinished})
        send(*client, report_of(id, stage));
  }

  void serve(Client& client, Job& job) {
    const uint64_t begun = processor_time();
    const pid_t pid = job.order.peer.pid;
    Report report;
    report.id = job.order.id;
    report.stage = Stage::kAnswered;
    bool told = false;
    if (!has_time(client)) {
      report.reached = Reached::kRefused;
    } else if (auto process = find(job); !process) {
      report.reached = Reached::kOther;
    } else if (!wait_for_predecessor(pid)) {
      report.reached = Reached::kRefused;
    } else {
      told = hold(client, job, std::move(*process), &report);
      const std::lock_guard lock(mutex_);
      held_.erase(pid);
      changed_.notify_all();
    }
    if (!told) send(client, report);
    report.stage = Stage::kFinished;
    report.processor_ns = processor_time() - begun;
    {
      const std::lock_guard lock(mutex_);
      client.time.spend(base::Clock::steady().now(), report.processor_ns);
    }
    send(client, report);
  }

  bool has_time(Client& client) {
    const std::lock_guard lock(mutex_);
    return client.time.wait(base::Clock::steady().now()).count() == 0;
  }

  static base::Result<rdma::PeerHandle> find(Job& job) {
    if (!is_of(job.pidfd, job.order.peer.pid)) return base::fail(ESRCH, "another process");
    return rdma::find_peer(job.order.peer, std::move(job.pidfd));
  }

  // Two concurrent holds of one process, by whichever clients, would each refuse it as traced. The
  // process was identified, so a client cannot reserve one that it does not know.
  bool wait_for_predecessor(pid_t pid) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kSuccession, [&] { return !held_.contains(pid); })) return false;
    held_.insert(pid);
    return true;
  }

  // False: the client was not told the result, and no thread is held.
  bool hold(const Client& client, const Job& job, rdma::PeerHandle process, Report* report) {
    auto hold = Hold::make(std::move(process), job.arena, job.order.thread);
    if (!hold) {
      report->reached = Reached::kOther;
      return false;
    }
    report->serial = ++serial_ & (ipc::kHoldSerials - 1);
    if (report->serial == 0) report->serial = ++serial_ & (ipc::kHoldSerials - 1);
    report->reached = hold->stop(report->serial);
    const bool told = offer(client, *report);
    if (told && report->reached == Reached::kNot) hold->keep([this] { return leaving_.load(); });
    hold->let_go();
    if (!told && report->reached == Reached::kNot) report->reached = Reached::kRefused;
    return told;
  }

  const Fd daemon_;  // a pidfd
  // Only the main thread uses these two.
  std::vector<ClientRef> clients_;  // that have not ended
  std::deque<ClientRef> ending_;    // that have ended and need a thread for it
  std::atomic<bool> leaving_ = false;
  std::atomic<uint32_t> serial_ = 0;
  std::mutex mutex_;  // guards the members below, and the clients
  std::condition_variable changed_;
  std::set<pid_t> held_;  // by pid
  unsigned threads_ = 0;  // of all clients
  unsigned queued_ = 0;   // of all clients but control
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

void serve(Fd socket, const Confine& confine) {
  Fd kept = become_child("vrdmad-stopper", std::move(socket), needed_capabilities());
  Fd daemon = open_parent();
  confine(kept);
  Process(std::move(kept), std::move(daemon)).run();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::stopper
