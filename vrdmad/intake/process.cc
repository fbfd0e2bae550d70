#include "vrdmad/intake/process.h"

#include <fcntl.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "vrdmad/child_process.h"
#include "vrdmad/intake/wire.h"

namespace vrdma::vrdmad::intake {

namespace {

using base::Fd;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kMostFds = 253;  // SCM_MAX_FD: as many as the kernel lets one message have
constexpr int kRetry = 50;        // ms, while no thread can be made

union Control {
  char buffer[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kMostFds)];
  cmsghdr align;
};

struct Job {
  Order order;
  Fd subject;
};

struct Account {
  std::deque<Job> jobs;
  unsigned threads = 0;
};

// Appends the descriptors and notes the credentials that came with a message.
void unpack(msghdr& message, std::vector<Fd>* fds, ucred* sender) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_CREDENTIALS)
      std::memcpy(sender, CMSG_DATA(header), sizeof *sender);
    if (header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      fds->emplace_back(fd);
    }
  }
}

Verdict judge(const Fd& fd) {
  Verdict verdict;
  struct statx status {};
  // Only what the kernel knows already: a FUSE server is not asked.
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

void send(int socket, const Report& report, const std::vector<int>& fds) {
  iovec piece{const_cast<Report*>(&report), sizeof report};
  union {
    char buffer[CMSG_SPACE(sizeof(int) * kMostVerdicts)];
    cmsghdr align;
  } control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.buffer;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  // The daemon has gone if this fails; then the main thread ends us.
  (void)::sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Takes what is unread out of a socket of the daemon's, for whose descriptor may be the last: then
// nothing is left behind it whose close could last. What was taken is closed by the caller.
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
    Control control{};
    msghdr message{};
    message.msg_control = control.buffer;
    message.msg_controllen = sizeof control.buffer;
    const ssize_t length =
        ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_TRUNC | MSG_DONTWAIT);
    if (length < 0 && errno != EINTR && errno != ECONNRESET) return;
    if (length < 0) continue;
    ucred ignored{};
    const size_t before = taken->size();
    unpack(message, taken, &ignored);
    if (length == 0 && taken->size() == before && message.msg_controllen == 0) return;  // the end
  }
}

void receive(int daemon, Job& job) {
  Report report;
  report.id = job.order.id;
  report.stage = Stage::kReceived;
  iovec piece{report.bytes.data(), report.bytes.size()};
  Control control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.buffer;
  message.msg_controllen = sizeof control.buffer;
  const ssize_t length =
      ::recvmsg(job.subject.get(), &message, MSG_CMSG_CLOEXEC | MSG_TRUNC | MSG_DONTWAIT);
  if (length < 0) report.error = static_cast<uint32_t>(errno);
  std::vector<Fd> fds;
  if (length >= 0) {
    report.length = static_cast<uint32_t>(length);
    report.truncated = (message.msg_flags & MSG_CTRUNC) != 0 ? 1 : 0;
    unpack(message, &fds, &report.sender);
  }
  job.subject.reset();  // the daemon has it, and perhaps it is to be closed there
  report.count = static_cast<uint32_t>(fds.size());
  std::vector<int> passed;
  for (size_t i = 0; i < std::min(fds.size(), kMostVerdicts); ++i) {
    report.verdicts[i] = judge(fds[i]);
    if (report.verdicts[i].passed != 0) passed.push_back(fds[i].get());
  }
  send(daemon, report, passed);
}  // closes the descriptors, which may take as long as their makers like

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
  // The daemon has gone. Threads that hang keep this process, but nobody's connection.
  [[noreturn]] void leave() {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, account] : accounts_)
      for (const Job& job : account.jobs) ::shutdown(job.subject.get(), SHUT_RDWR);
    ::_exit(0);
  }

  // For an order; or, while accounts wait for a thread, for a while.
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
    for (;;) {
      iovec piece{&job->order, sizeof job->order};
      Control control{};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.buffer;
      message.msg_controllen = sizeof control.buffer;
      const ssize_t length = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
      if (length < 0 && errno == EINTR) continue;
      if (length != sizeof job->order) return false;
      std::vector<Fd> fds;
      ucred sender{};
      unpack(message, &fds, &sender);
      if (!fds.empty()) job->subject = std::move(fds.front());
      return true;
    }
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
      send(socket_.get(), over, {});
    }
  }

  const Fd socket_;
  std::mutex mutex_;
  std::map<uint64_t, Account> accounts_;  // those with jobs or threads
  std::deque<uint64_t> hungry_;           // accounts with jobs and no thread
  unsigned threads_ = 0;
};

}  // namespace

void serve(Fd socket, const std::function<void()>& confine) {
  Fd kept = become_child("vrdmad-intake", std::move(socket), 0);
  confine();
  Process(std::move(kept)).run();
  ::_exit(0);
}

}  // namespace vrdma::vrdmad::intake
