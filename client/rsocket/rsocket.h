// A socket whose data goes by RDMA: what stands behind the descriptors of rsocket(), and what its
// two kinds share (rsocket_stream.h, rsocket_datagram.h).
//
// The descriptor is an epoll instance: readable whenever something happened that the socket has to
// look at, an event of rdma_cm, a completion, or what another thread found. It is asked only before
// a thread sleeps.
//
// Errors are negative errno values, as the call of sockets(7) has them. Any thread; the calls for
// one socket take turns, and a thread that sleeps holds no lock.
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

// What recvmsg(2) tells of a message beside its bytes.
struct RsOrigin {
  sockaddr_storage address{};  // of no family: the peer's
  bool cut = false;            // it was longer than the room for it
};

class RSocket {
 public:
  virtual ~RSocket() = default;
  RSocket(const RSocket&) = delete;
  RSocket& operator=(const RSocket&) = delete;

  // rsocket_table.cc. The table of all by descriptor. nullptr and errno: EBADF or ENOTSOCK.
  [[nodiscard]] static std::shared_ptr<RSocket> find(int fd);
  [[nodiscard]] static std::shared_ptr<RSocket> try_find(int fd);
  static void enter(const std::shared_ptr<RSocket>& socket);
  // `last`: no other descriptor stands for it.
  static std::shared_ptr<RSocket> remove(int fd, bool* last);
  // Another descriptor of it, `least` or above; as of fcntl(2), or a negative errno.
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
  // `to` nullptr: the peer that it is connected to.
  virtual ssize_t send(const iovec* from, size_t count, int flags, const sockaddr* to) = 0;

  virtual off_t map(void* /*buffer*/, size_t /*length*/, int /*protection*/, off_t /*offset*/) {
    return -EOPNOTSUPP;
  }
  virtual int unmap(void* /*buffer*/, size_t /*length*/) { return -EOPNOTSUPP; }
  virtual ssize_t write_mapped(const void* /*from*/, size_t /*count*/, off_t /*offset*/,
                               int /*flags*/) {
    return -EOPNOTSUPP;
  }

  // rsocket_options.cc
  int set_option(int level, int name, const void* value, socklen_t length);
  int get_option(int level, int name, void* value, socklen_t* length);
  [[nodiscard]] bool nonblocking() const { return nonblocking_; }
  void set_nonblocking(bool is) { nonblocking_ = is; }

  // rsocket_poll.cc. What poll(2) would say now.
  [[nodiscard]] short poll(short events);
  // The same; if that is nothing, the descriptor becomes readable when it may have changed, until
  // end_sleep().
  [[nodiscard]] short begin_sleep(short events);
  void end_sleep();

 protected:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  // Of AF_INET or AF_INET6; SOCK_STREAM or SOCK_DGRAM.
  RSocket(int domain, int type) : domain_(domain), type_(type) {}

  int watch(int fd);
  void unwatch(int fd);
  int open_channel();
  // Without agreement: why, which the program is told once, and whoever sleeps at once.
  void end(int error);

  // Everything that has completed. Whoever sleeps is woken.
  virtual void process() = 0;
  // What else has happened.
  virtual void take_events() = 0;
  // From here on a completion makes the descriptor readable.
  virtual void arm() = 0;
  virtual void disarm() = 0;
  // A completion may come soon enough to spin for it.
  [[nodiscard]] virtual bool is_busy() const = 0;
  [[nodiscard]] virtual short events_now(short events) = 0;

  // Options. The value of one that is kept has become `value`.
  virtual int apply_option(int level, int name, int value) = 0;
  [[nodiscard]] virtual bool is_sized() const = 0;  // its queues and buffers are made
  [[nodiscard]] virtual bool is_listening() const { return false; }

  // Sleeps until the test holds: 0, -EAGAIN or -EINTR. What a signal does is as with the kernel's
  // sockets: handlers with SA_RESTART end only a wait with a limit (signal(7)). kPass: none does.
  enum class Signals { kMayEnd, kPass };
  template <class Test>
  int wait(Lock& lock, bool nonblocking, const timeval& limit, Test test,
           Signals signals = Signals::kMayEnd);
  int sleep(Lock& lock, int timeout);
  void rise();   // from sleep
  void nudge();  // whoever sleeps looks again

  const int domain_, type_;
  const pid_t maker_ = ::getpid();
  std::mutex mutex_;
  bool nonblocking_ = false;
  base::Fd epoll_;
  base::Fd nudge_;  // an eventfd
  uint32_t sleepers_ = 0;
  bool nudged_ = false;

  rdma_event_channel* channel_ = nullptr;
  bool closed_ = false;
  int end_ = 0;    // why it ended without agreement
  int error_ = 0;  // SO_ERROR

  // Options
  uint32_t send_size_ = 1U << 17, receive_size_ = 1U << 17;
  uint32_t send_depth_ = 384, receive_depth_ = 384;
  uint32_t inline_ = 64;
  uint32_t own_iomaps_ = 0;
  timeval receive_limit_{}, send_limit_{};
  std::map<std::pair<int, int>, int> kept_;  // what is only remembered
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
    ++sleepers_;
    const int error = sleep(lock, timeout);
    rise();
    if (test()) return 0;
    const bool again =
        error == -EINTR && (signals == Signals::kPass || (!limited && base::handlers_restart()));
    if (error != 0 && !again) return error;
  }
}

}  // namespace vrdma::client
