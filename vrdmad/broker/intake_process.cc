#include "vrdmad/broker/intake_process.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/ipc/socket.h"
#include "vrdmad/broker/helper_client.h"
#include "vrdmad/broker/intake_wire.h"

namespace vrdma::vrdmad::intake {

namespace {

using base::Fd;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// To become another user, and to drop the rest: `confine` does.
constexpr uint64_t kForTheStart =
    uint64_t{1} << CAP_SETUID | uint64_t{1} << CAP_SETGID | uint64_t{1} << CAP_SETPCAP;
static_assert(kMostVerdicts <= ipc::kMaxFds);

struct Job {
  Order order;
  Fd subject;
};

struct Account {
  std::deque<Job> jobs;
  unsigned threads = 0;
};

// Its own threads keep it after its end.
struct Client : HelperClient {
  using HelperClient::HelperClient;
  std::map<uint64_t, Account> accounts;  // with jobs or threads
};
using ClientRef = std::shared_ptr<Client>;

// Whether a client may send such a message. A descriptor may be lost if this process has too many.
bool is_permitted(const Client& client, const ipc::Received& message, const Order& order) {
  if (message.length != sizeof order) return false;
  if (message.fds.size() != 1 && !(message.fds.empty() && message.truncated)) return false;
  switch (order.task) {
    case Task::kReceive:
    case Task::kClose:
      return true;
    case Task::kAddClient:
    case Task::kReceiveProcess:
      return client.control;
  }
  return false;
}

uint64_t device_of(uint32_t major, uint32_t minor) { return uint64_t{major} << 32 | minor; }

// The device number of all namespaces' files, by which they are recognized without a request to a
// file's server, which ioctl(2) may be. Found before this process loses the file system.
uint64_t nsfs_device = 0;

void find_nsfs() {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) == 0)
    nsfs_device = device_of(major(status.st_dev), minor(status.st_dev));
}

// Signal 0 is sent to no process. A directory of /proc is taken for a pidfd too.
bool is_pidfd(const Fd& fd, uint16_t mode) {
  if (S_ISDIR(mode)) return false;
  return ::syscall(SYS_pidfd_send_signal, fd.get(), 0, nullptr, 0) == 0 || errno == EPERM ||
         errno == ESRCH;
}

Verdict judge(const Fd& fd, Task task) {
  Verdict verdict;
  struct statx status {};
  // AT_STATX_DONT_SYNC returns what the kernel has cached, without a request to a FUSE server.
  if (::statx(fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE | STATX_SIZE,
              &status) == 0) {
    verdict.device = device_of(status.stx_dev_major, status.stx_dev_minor);
    verdict.inode = status.stx_ino;
  } else {
    verdict.error = static_cast<uint32_t>(errno);
  }
  if (task == Task::kReceiveProcess) {
    if (verdict.error == 0 && nsfs_device != 0 && verdict.device == nsfs_device &&
        ::ioctl(fd.get(), NS_GET_NSTYPE) == CLONE_NEWNET)
      verdict.kind = Kind::kNetns;
    else if (is_pidfd(fd, status.stx_mode))
      verdict.kind = Kind::kPidfd;
    verdict.passed = verdict.kind != Kind::kOther ? 1 : 0;
    return verdict;
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals >= 0) {
    verdict.kind = Kind::kMemory;
    verdict.passed = seals == kSeals ? 1 : 0;
    if (verdict.passed != 0) verdict.size = status.stx_size;
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
  constexpr int kMost = 100'000;  // more than a backlog holds
  int domain = 0, listens = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX)
    return;
  size = sizeof listens;
  (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
  if (listens == 0) return take_unread(socket, taken);
  for (int i = 0; i < kMost; ++i) {
    Fd client(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client.valid()) return;
    taken->push_back(std::move(client));
  }
}

void shut_down(const std::vector<Fd>& sockets) {
  for (const Fd& socket : sockets) ::shutdown(socket.get(), SHUT_RDWR);
}

void receive(int client, Job& job) {
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
  job.subject.reset();  // the client has a copy, and may have to close it
  report.count = static_cast<uint32_t>(received.fds.size());
  std::vector<int> passed;
  for (size_t i = 0; i < std::min(received.fds.size(), kMostVerdicts); ++i) {
    report.verdicts[i] = judge(received.fds[i], job.order.task);
    if (report.verdicts[i].passed != 0) passed.push_back(received.fds[i].get());
  }
  // Fails only if the client has ended.
  (void)ipc::send_message(client, &report, sizeof report, passed);
}  // closing the descriptors may take long

class Process {
 public:
  explicit Process(Fd control) {
    clients_.push_back(std::make_shared<Client>(std::move(control), true));
  }

  void run() {
    for (;;) {
      for (const Ready& ready : wait())
        if (!take(ready)) end(ready.client);
      try_again();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Ready {
    ClientRef client;
    bool hung_up;
  };

  // Waits for messages and ends of clients, or until it is time to try again.
  std::vector<Ready> wait() {
    std::vector<pollfd> sockets;
    {
      const std::lock_guard lock(mutex_);
      bool waiting = !hungry_.empty() || !ending_.empty();
      for (const ClientRef& client : clients_) {
        const bool reads =
            client->control || (client->queued < kMostQueued &&
                                may_have_more(client->queued, queued_, kMostQueuedOfAll));
        waiting = waiting || !reads;
        sockets.push_back({client->socket.get(), static_cast<short>(reads ? POLLIN : 0), 0});
      }
      waiting_ = waiting;
    }
    (void)::poll(sockets.data(), sockets.size(), waiting_ ? int{kHelperRetry.count()} : -1);
    std::vector<Ready> ready;
    for (size_t i = 0; i < sockets.size(); ++i)
      if (sockets[i].revents != 0)
        ready.push_back({clients_[i], (sockets[i].revents & POLLHUP) != 0});
    return ready;
  }

  // Takes one message, so that clients take turns. False: the client has ended, or must. What
  // control has sent before its end is read first.
  bool take(const Ready& ready) {
    const ClientRef& client = ready.client;
    if (ready.hung_up && !client->control) return false;
    Job job;
    auto message =
        ipc::receive_any(client->socket.get(), &job.order, sizeof job.order, MSG_DONTWAIT);
    if (message.error == EAGAIN) return true;
    if (!is_permitted(*client, message, job.order)) {
      client->doomed = std::move(message.fds);
      return false;
    }
    if (!message.fds.empty()) job.subject = std::move(message.fds.front());
    if (job.order.task == Task::kAddClient) {
      if (job.subject.valid())
        clients_.push_back(std::make_shared<Client>(std::move(job.subject), false));
      return true;
    }
    const std::lock_guard lock(mutex_);
    const uint64_t account = job.order.account;
    client->accounts[account].jobs.push_back(std::move(job));
    count(*client, 1);
    want_thread(client, account);
    return true;
  }

  // Hung threads keep what they hold, but no connection of a tenant stays.
  void end(const ClientRef& client) {
    if (client->control) leave();
    ::shutdown(client->socket.get(), SHUT_RDWR);  // no further message, and no thread waits for it
    const std::lock_guard lock(mutex_);
    shut_down_jobs(*client);
    std::erase(clients_, client);
    want_end(client);
  }

  // Control has ended.
  [[noreturn]] void leave() {
    const std::lock_guard lock(mutex_);
    clients_.insert(clients_.end(), ending_.begin(), ending_.end());
    for (const ClientRef& client : clients_) {
      ::shutdown(client->socket.get(), SHUT_RDWR);
      shut_down_jobs(*client);
      take_unread(client->socket, &client->doomed);
      shut_down(client->doomed);
    }
    ::_exit(0);
  }

  // mutex_ is held.
  static void shut_down_jobs(const Client& client) {
    for (const auto& [number, account] : client.accounts)
      for (const Job& job : account.jobs) ::shutdown(job.subject.get(), SHUT_RDWR);
  }

  // For accounts that have no thread, and clients whose ends have none.
  void try_again() {
    if (!waiting_ || Clock::now() < next_try_) return;
    next_try_ = Clock::now() + kHelperRetry;
    const std::lock_guard lock(mutex_);
    for (auto waiting = std::exchange(hungry_, {}); !waiting.empty(); waiting.pop_front())
      want_thread(waiting.front().first, waiting.front().second);
    for (auto waiting = std::exchange(ending_, {}); !waiting.empty(); waiting.pop_front())
      want_end(waiting.front());
  }

  // mutex_ is held.
  void count(Client& client, int change) {
    client.queued += static_cast<unsigned>(change);
    if (!client.control) queued_ += static_cast<unsigned>(change);
  }

  // mutex_ is held.
  void want_thread(const ClientRef& client, uint64_t number) {
    const auto it = client->accounts.find(number);
    if (it == client->accounts.end() || it->second.threads >= kThreadsPerAccount) return;
    if (may_have_more(client->threads, threads_, kThreads)) {
      try {
        std::thread([this, client, number] { work(*client, number); }).detach();
        ++threads_;
        ++client->threads;
        ++it->second.threads;
        return;
      } catch (const std::system_error&) {
      }
    }
    if (it->second.threads == 0) hungry_.emplace_back(client, number);
  }

  // A thread beside those of the accounts, all of which may hang. mutex_ is held.
  void want_end(const ClientRef& client) {
    try {
      std::thread([client] {
        std::vector<Fd> unread = std::move(client->doomed);
        take_unread(client->socket, &unread);
        shut_down(unread);
      }).detach();
    } catch (const std::system_error&) {
      ending_.push_back(client);
    }
  }

  void work(Client& client, uint64_t number) {
    for (;;) {
      Job job;
      {
        const std::lock_guard lock(mutex_);
        const auto it = client.accounts.find(number);
        if (it->second.jobs.empty()) {
          --threads_;
          --client.threads;
          if (--it->second.threads == 0) client.accounts.erase(it);
          return;
        }
        job = std::move(it->second.jobs.front());
        it->second.jobs.pop_front();
        count(client, -1);
      }
      std::vector<Fd> taken;
      if (job.order.task == Task::kReceive || job.order.task == Task::kReceiveProcess)
        receive(client.socket.get(), job);
      else
        drain(job.subject, &taken);
      job.subject.reset();
      taken.clear();
      Report over;
      over.id = job.order.id;
      (void)ipc::send_message(client.socket.get(), &over, sizeof over);
    }
  }

  std::vector<ClientRef> clients_;  // that have not ended; only the main thread
  bool waiting_ = false;            // for try_again()
  Clock::time_point next_try_{};
  std::mutex mutex_;                                   // guards the members below, and the clients
  std::deque<std::pair<ClientRef, uint64_t>> hungry_;  // accounts with jobs but no thread
  std::deque<ClientRef> ending_;                       // that have ended and need a thread for it
  unsigned threads_ = 0;                               // of all clients
  unsigned queued_ = 0;                                // of all clients but control
};

}  // namespace

void serve(Fd socket, const Confine& confine) {
  Fd kept = become_child("vrdmad-intake", std::move(socket), kForTheStart);
  find_nsfs();
  confine(kept);
  Process(std::move(kept)).run();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::intake
