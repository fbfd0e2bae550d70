// A stream socket whose data goes by RDMA: what stands behind the descriptors of rsocket().
//
// The descriptor is an epoll instance: readable whenever something happened that the socket has to
// look at, an event of its connection, a completion, or what another thread found. It is asked
// only before a thread sleeps.
//
// Errors are negative errno values, as the call of sockets(7) has them. Any thread; the calls for
// one socket take turns, and a thread that sleeps holds no lock.
#pragma once

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/rdmacm/rsocket_protocol.h"
#include "core/base/fd.h"

namespace vrdma::client {

class RSocket {
 public:
  // Of AF_INET or AF_INET6.
  explicit RSocket(int domain) : domain_(domain) {}
  ~RSocket();
  RSocket(const RSocket&) = delete;
  RSocket& operator=(const RSocket&) = delete;

  // The table of all by descriptor. nullptr and errno: EBADF or ENOTSOCK.
  [[nodiscard]] static std::shared_ptr<RSocket> find(int fd);
  [[nodiscard]] static std::shared_ptr<RSocket> try_find(int fd);
  static void enter(const std::shared_ptr<RSocket>& socket);
  // `last`: no other descriptor stands for it.
  static std::shared_ptr<RSocket> remove(int fd, bool* last);
  // Another descriptor of it, `least` or above; as of fcntl(2), or a negative errno.
  static int duplicate(int fd, int command, int least);
  static void close_all();

  int open();
  [[nodiscard]] int fd() const { return epoll_.get(); }

  // rsocket_connection.cc
  int bind(const sockaddr* address);
  int listen(int backlog);
  int connect(const sockaddr* address);
  int accept(std::shared_ptr<RSocket>* made);
  int shutdown(int how);
  void close();
  [[nodiscard]] int name(bool of_peer, sockaddr* address, socklen_t* length);

  // rsocket_stream.cc
  ssize_t receive(const iovec* to, size_t count, int flags);
  ssize_t send(const iovec* from, size_t count, int flags);

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

  // rsocket_iomap.cc
  off_t map(void* buffer, size_t length, int protection, off_t offset);
  int unmap(void* buffer, size_t length);
  ssize_t write_mapped(const void* from, size_t count, off_t offset, int flags);

 private:
  enum class Phase { kIdle, kListening, kConnecting, kConnected, kFailed };
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Mapping {
    ibv_mr* region = nullptr;
    uint64_t offset = 0;
    uint32_t index = 0;
    bool remote = false;
    bool told = false;
  };

  // The channel, and for those who do not accept a connection an id on it.
  int open_id();
  int prepare_id();
  int take_request(const RSocket& listener, const rdma_cm_event& event);
  int watch(int fd);
  void unwatch(int fd);
  void release();
  int create_endpoint();
  [[nodiscard]] RsHello hello() const;
  bool meet(const rdma_conn_param& told);
  void on_event(const rdma_cm_event& event);
  void fail_connect(int error);
  void take_events();

  // rsocket_stream.cc
  // Everything that has happened to the queue pair; answers what is owed. Whoever sleeps is woken.
  void process();
  void on_received(uint32_t message);
  void on_control(RsControl control);
  void give_credits();
  int send_control(RsControl control);
  void end(int error);
  int post_write(const void* local, uint32_t lkey, uint32_t length, uint64_t remote, uint32_t rkey,
                 const uint32_t* message, uint64_t wr_id);
  int post_receives(uint32_t count);
  [[nodiscard]] bool connected() const { return phase_ == Phase::kConnected; }
  [[nodiscard]] bool usable() const { return connected() && established_ && end_ == 0 && !gone_; }
  [[nodiscard]] bool can_send();
  void take_areas();
  [[nodiscard]] bool all_sent() const;
  [[nodiscard]] size_t send_piece(const uint8_t* from, size_t length);
  [[nodiscard]] int send_refused() const;
  int tell_mappings(Lock& lock, bool nonblocking, const timeval& limit);

  // Sleeps until the test holds: 0, -EAGAIN or -EINTR.
  template <class Test>
  int wait(Lock& lock, bool nonblocking, const timeval& limit, Test test);
  int sleep(Lock& lock, int timeout);
  void arm();
  void rise();  // from sleep
  void nudge();
  [[nodiscard]] short events_now(short events);

  int apply_options();

  const int domain_;
  std::mutex mutex_;
  bool nonblocking_ = false;
  base::Fd epoll_;
  base::Fd nudge_;  // an eventfd
  uint32_t sleepers_ = 0;
  bool nudged_ = false;

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_comp_channel* completions_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool armed_ = false;

  Phase phase_ = Phase::kIdle;
  bool bound_ = false;
  bool established_ = false;  // the peer is known to have answered
  bool reads_ = false;        // more may come
  bool writes_ = false;       // more may be sent
  bool shut_ = false;         // we have said that we send no more
  bool gone_ = false;         // the peer will neither send nor take anything, by agreement
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

  // Memory that the peer writes to: the list of its buffers, then its iomaps; and our buffer.
  std::vector<uint8_t> told_, received_, sent_;
  ibv_mr *told_region_ = nullptr, *received_region_ = nullptr, *sent_region_ = nullptr;
  ReceiveRing in_;
  SendRing out_;
  SendCredits credits_;
  RsArea areas_[kRsAreas];           // of the peer's buffer, taken from told_
  uint32_t target_ = 0, taken_ = 0;  // the area that is being filled; that is taken next
  RsArea peer_list_;
  uint32_t peer_entry_ = 1;  // that is written next
  uint32_t peer_iomaps_ = 0;
  uint32_t slots_ = 0;     // of the send queue, for data
  uint32_t controls_ = 0;  // for control

  std::list<Mapping> mappings_;
};

template <class Test>
int RSocket::wait(Lock& lock, bool nonblocking, const timeval& limit, Test test) {
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
  while (connected() && Clock::now() < begin + kSpin) {
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
    if (error != 0) return error;
  }
}

}  // namespace vrdma::client
