// A socket over RDMA: the object behind a descriptor of rsocket(), and the common part of its two
// kinds (stream.h, datagram.h).
//
// The descriptor is an epoll instance. It becomes readable when the socket has something to
// process: an event of rdma_cm, a completion, or a nudge by another thread. A thread waits on it
// only before it sleeps.
//
// The descriptor stays readable by a nudge until all threads have risen that slept when it came:
// one that checks in vain sleeps again before the others have run.
//
// Errors are negative errno values, as for the call of sockets(7). Any thread; calls for one socket
// are serialized, and a sleeping thread holds no lock.
#pragma once

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "core/base/fd.h"
#include "core/base/signals.h"

namespace vrdma::client {

// Results of recvmsg(2) beside the bytes.
struct RsOrigin {
  sockaddr_storage address{};  // no family: the connected peer
  bool cut = false;            // the message was truncated
};

class RSocket {
 public:
  virtual ~RSocket() = default;
  RSocket(const RSocket&) = delete;
  RSocket& operator=(const RSocket&) = delete;

  // table.cc: the sockets by descriptor. nullptr and errno: EBADF or ENOTSOCK.
  [[nodiscard]] static std::shared_ptr<RSocket> find(int fd);
  [[nodiscard]] static std::shared_ptr<RSocket> try_find(int fd);
  static void enter(const std::shared_ptr<RSocket>& socket);
  // False in a child that vfork(2) or clone(2) made.
  [[nodiscard]] static bool is_own_process();
  // True in a child that fork(2) made, which has none of its parent's sockets.
  [[nodiscard]] static bool are_forgotten();
  // `last`: no other descriptor refers to the socket.
  static std::shared_ptr<RSocket> remove(int fd, bool* last);
  // Duplicates the descriptor to `least` or above, by fcntl(2); or a negative errno.
  static int duplicate(int fd, int command, int least);
  static void close_all();

  virtual int open();
  [[nodiscard]] int fd() const { return epoll_.get(); }

  virtual int bind(const sockaddr* address) = 0;
  virtual int listen(int /*backlog*/) { return -EOPNOTSUPP; }
  virtual int connect(const sockaddr* address) = 0;
  virtual int accept(std::shared_ptr<RSocket>* /*made*/) { return -EOPNOTSUPP; }
  virtual int shutdown(int how) = 0;
  virtual void close() = 0;
  [[nodiscard]] virtual int name(bool of_peer, sockaddr* address, socklen_t* length) = 0;

  virtual ssize_t receive(const iovec* to, size_t count, int flags, RsOrigin* origin) = 0;
  // `to` nullptr: the connected peer.
  virtual ssize_t send(const iovec* from, size_t count, int flags, const sockaddr* to) = 0;

  virtual off_t map(void* /*buffer*/, size_t /*length*/, int /*protection*/, off_t /*offset*/) {
    return -EOPNOTSUPP;
  }
  virtual int unmap(void* /*buffer*/, size_t /*length*/) { return -EOPNOTSUPP; }
  virtual ssize_t write_mapped(const void* /*from*/, size_t /*count*/, off_t /*offset*/,
                               int /*flags*/) {
    return -EOPNOTSUPP;
  }

  // options.cc
  int set_option(int level, int name, const void* value, socklen_t length);
  int get_option(int level, int name, void* value, socklen_t* length);
  [[nodiscard]] bool nonblocking() const { return nonblocking_; }
  void set_nonblocking(bool is) { nonblocking_ = is; }

  // poll.cc. The result of poll(2) now.
  [[nodiscard]] short poll(short events);
  // The number of nudges that came before a thread began to sleep.
  using Began = uint64_t;
  // The same; if there are no events, the descriptor becomes readable when that may have changed,
  // until end_sleep(), or abandon_sleep() of a thread that is cancelled (pthreads(7)).
  [[nodiscard]] short begin_sleep(short events, Began* began);
  void end_sleep(Began began);
  void abandon_sleep(Began began);

 protected:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // Of AF_INET or AF_INET6; SOCK_STREAM or SOCK_DGRAM.
  RSocket(int domain, int type) : domain_(domain), type_(type) {}

  int watch(int fd);
  void unwatch(int fd);
  int open_channel();
  // Ends the connection with an error: the program gets it once, and sleeping threads wake.
  void end(int error);

  // Processes all completions. Wakes sleeping threads if anything changed.
  virtual void process() = 0;
  // Processes all other events.
  virtual void take_events() = 0;
  // From here on a completion makes the descriptor readable.
  virtual void arm() = 0;
  virtual void disarm() = 0;
  // A completion may come soon enough to spin for it.
  [[nodiscard]] virtual bool is_busy() const = 0;
  [[nodiscard]] virtual short events_now(short events) = 0;

  // An option has got the new `value`.
  virtual int apply_option(int level, int name, int value) = 0;
  [[nodiscard]] virtual bool is_sized() const = 0;  // queues and buffers exist
  [[nodiscard]] virtual bool is_listening() const { return false; }

  // Sleeps until the test holds: 0, -EAGAIN or -EINTR. Signals have the same effect as on the
  // kernel's sockets: handlers with SA_RESTART interrupt only a wait with a limit (signal(7)).
  // kPass: no signal interrupts the wait.
  enum class Signals { kMayEnd, kPass };
  template <class Test>
  int wait(Lock& lock, bool nonblocking, const timeval& limit, Test test,
           Signals signals = Signals::kMayEnd);
  int sleep(Lock& lock, int timeout);
  void resume();  // after sleep
  void nudge();   // sleeping threads check again
  Began lie_down();
  void get_up(Began began);

  const int domain_, type_;
  std::mutex mutex_;
  bool nonblocking_ = false;
  base::Fd epoll_;
  base::Fd nudge_;  // an eventfd
  uint32_t sleepers_ = 0;
  Began nudges_ = 0;      // that have come
  bool nudged_ = false;   // the eventfd is readable
  uint32_t to_rise_ = 0;  // sleepers that began before the last nudge, if nudged_

  rdma_event_channel* channel_ = nullptr;
  bool closed_ = false;
  int end_ = 0;    // the errno of an abnormal end
  int error_ = 0;  // SO_ERROR

  // Options
  uint32_t send_size_ = 1U << 17, receive_size_ = 1U << 17;
  uint32_t send_depth_ = 384, receive_depth_ = 384;
  uint32_t inline_ = 64;
  uint32_t own_iomaps_ = 0;
  timeval receive_limit_{}, send_limit_{};
  std::map<std::pair<int, int>, int> kept_;  // options that are only stored
  linger linger_{};
};

template <class Test>
int RSocket::wait(Lock& lock, bool nonblocking, const timeval& limit, Test test, Signals signals) {
  constexpr std::chrono::microseconds kSpin{10};
  process();
  if (test()) return 0;
  if (nonblocking) {
    take_events();
    return test() ? 0 : -EAGAIN;
  }
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::seconds(limit.tv_sec) + std::chrono::microseconds(limit.tv_usec);
  const bool limited = limit.tv_sec != 0 || limit.tv_usec != 0;
  while (is_busy() && Clock::now() < begin + kSpin) {
    process();
    if (test()) return 0;
  }
  for (;;) {
    arm();
    take_events();
    if (test()) return 0;
    int timeout = -1;
    if (limited) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return -EAGAIN;
      timeout = static_cast<int>(std::min<int64_t>(left, 1 << 30));
    }
    const int error = sleep(lock, timeout);
    resume();
    if (test()) return 0;
    const bool again =
        error == -EINTR && (signals == Signals::kPass || (!limited && base::handlers_restart()));
    if (error != 0 && !again) return error;
  }
}

}  // namespace vrdma::client
