// librspreload.so interposes the calls of sockets(7) for unmodified programs. If the namespace has
// vdevices, an internet stream or datagram socket becomes a socket over RDMA (rsocket(7)); calls on
// all other descriptors go to libc unchanged.
//
// A socket that is bound or connected to an address without a vdevice, or sends its first datagram
// there, becomes a kernel socket with the same number: see fallback.cc.
#include "client/rspreload/preload.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rsocket/vdevices_only.h"

namespace {

constexpr int kMostDescriptors = 1 << 16;
std::array<std::atomic<vrdma::rspreload::Way>, kMostDescriptors> ways;
std::atomic<int> past_ways = 0;  // all others are kKernel
std::atomic<pid_t> process = ::getpid();

// In a forked child, to which its parent's sockets are descriptors like others: it can close them.
void forget_sockets() {
  using namespace vrdma::rspreload;
  process = ::getpid();
  for (int fd = 0; fd < past_ways; ++fd)
    if (over_rdma(fd)) set_way(fd, Way::kKernel);
  forget_sets();
}
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, forget_sockets);

}  // namespace

namespace vrdma::rspreload {

Way way_of(int fd) {
  if (fd < 0 || fd >= kMostDescriptors) return Way::kKernel;
  return ways[static_cast<size_t>(fd)].load(std::memory_order_relaxed);
}

void set_way(int fd, Way way) {
  for (int past = past_ways; way != Way::kKernel && past <= fd;)
    if (past_ways.compare_exchange_weak(past, fd + 1)) break;
  ways[static_cast<size_t>(fd)].store(way, std::memory_order_relaxed);
}

bool is_own_process() { return process.load(std::memory_order_relaxed) == ::getpid(); }

bool is_valid_timeout(const timespec* time) {
  if (time == nullptr || (time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < 1'000'000'000))
    return true;
  errno = EINVAL;
  return false;
}

int milliseconds(const timespec* time) {
  if (time == nullptr) return -1;
  constexpr int64_t kMost = 1 << 30;
  const int64_t all =
      std::min<int64_t>(time->tv_sec, kMost) * 1000 + (time->tv_nsec + 999'999) / 1'000'000;
  return static_cast<int>(std::min(all, kMost));
}

}  // namespace vrdma::rspreload

using namespace vrdma::rspreload;  // NOLINT: most of this part is nothing but the way from C

namespace {

// Registers a new descriptor of the program. `flags` of socket(2) or accept4(2).
int keep(int fd, int flags, Way way = Way::kRdma) {
  if (fd < 0) return fd;
  if (fd >= kMostDescriptors) {
    rclose(fd);
    errno = EMFILE;
    return -1;
  }
  if ((flags & SOCK_NONBLOCK) != 0) (void)rfcntl(fd, F_SETFL, O_NONBLOCK);
  if ((flags & SOCK_CLOEXEC) != 0) (void)rfcntl(fd, F_SETFD, FD_CLOEXEC);
  set_way(fd, way);
  return fd;
}

}  // namespace

namespace {

// Notes that a socket over RDMA was read (EPOLLIN) or written (EPOLLOUT), and returns `result`.
template <class Result>
Result used(int fd, uint32_t how, Result result) {
  used_in_sets(fd, how);
  return result;
}

// Tries the call over RDMA. False: it is a kernel socket now, and the caller must call libc.
template <class Call>
bool tried(int fd, const sockaddr* address, socklen_t length, Call call, int* done) {
  if (is_loopback(address, length)) return !become_plain(fd);
  *done = call(fd, address, length);
  return *done == 0 || !leads_nowhere(errno) || !become_plain(fd);
}

}  // namespace

VRDMA_EXPORT int socket(int domain, int type, int protocol) try {
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  const bool internet = domain == AF_INET || domain == AF_INET6;
  const bool tcp = (type & ~kFlags) == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  const bool udp = (type & ~kFlags) == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  if (internet && (tcp || udp)) {
    const int saved = errno;
    const int made = rsocket(domain, (type & ~kFlags) | vrdma::client::kVdevicesOnly, protocol);
    const int fd = keep(made, type & kFlags, udp ? Way::kOpen : Way::kRdma);
    if (fd >= 0) return fd;
    errno = saved;
  }
  return NEXT(socket)(domain, type, protocol);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int bind(int fd, const sockaddr* address, socklen_t length) try {
  int done = -1;
  if (over_rdma(fd) && tried(fd, address, length, rbind, &done)) return done;
  return NEXT(bind)(fd, address, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int listen(int fd, int backlog) try {
  return over_rdma(fd) ? rlisten(fd, backlog) : NEXT(listen)(fd, backlog);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int accept4(int fd, sockaddr* address, socklen_t* length, int flags) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, keep(raccept(fd, address, length), flags));
  return NEXT(accept4)(fd, address, length, flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int accept(int fd, sockaddr* address, socklen_t* length) try {
  return accept4(fd, address, length, 0);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int connect(int fd, const sockaddr* address, socklen_t length) try {
  int done = -1;
  choose_way(fd, address, length);
  if (over_rdma(fd) && tried(fd, address, length, rconnect, &done)) return done;
  return NEXT(connect)(fd, address, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int shutdown(int fd, int how) try {
  return over_rdma(fd) ? rshutdown(fd, how) : NEXT(shutdown)(fd, how);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int close(int fd) try {
  leave_sets(fd);
  if (over_rdma_here(fd)) {
    set_way(fd, Way::kKernel);
    return rclose(fd);
  }
  return NEXT(close)(fd);
}
VRDMA_OR_ENOMEM(-1)

// ---- data ---------------------------------------------------------------------------------------

VRDMA_EXPORT ssize_t recv(int fd, void* buffer, size_t length, int flags) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, rrecv(fd, buffer, length, flags));
  return NEXT(recv)(fd, buffer, length, flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t recvfrom(int fd, void* buffer, size_t length, int flags, sockaddr* address,
                              socklen_t* size) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, rrecvfrom(fd, buffer, length, flags, address, size));
  return NEXT(recvfrom)(fd, buffer, length, flags, address, size);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, rrecvmsg(fd, message, flags));
  return NEXT(recvmsg)(fd, message, flags);
}
VRDMA_OR_ENOMEM(-1)

// As in recvmmsg(2), the timeout is checked only between two messages.
VRDMA_EXPORT int recvmmsg(int fd, mmsghdr* messages, unsigned int count, int flags,
                          timespec* timeout) try {
  if (!over_rdma(fd)) return NEXT(recvmmsg)(fd, messages, count, flags, timeout);
  if (!is_valid_timeout(timeout)) return -1;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(std::max(milliseconds(timeout), 0));
  int done = 0;
  for (mmsghdr& each : std::span(messages, std::min<size_t>(count, UIO_MAXIOV))) {
    const bool waits = done == 0 || (flags & MSG_WAITFORONE) == 0;
    const int how = (flags & ~MSG_WAITFORONE) | (waits ? 0 : MSG_DONTWAIT);
    const ssize_t got = recvmsg(fd, &each.msg_hdr, how);
    if (got < 0) return done > 0 ? done : -1;
    each.msg_len = static_cast<unsigned int>(got);
    ++done;
    if (timeout != nullptr && Clock::now() >= end) break;
  }
  return done;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t read(int fd, void* buffer, size_t length) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, rread(fd, buffer, length));
  return NEXT(read)(fd, buffer, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t readv(int fd, const iovec* to, int count) try {
  if (over_rdma(fd)) return used(fd, EPOLLIN, rreadv(fd, to, count));
  return NEXT(readv)(fd, to, count);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t send(int fd, const void* buffer, size_t length, int flags) try {
  if (over_rdma(fd)) return used(fd, EPOLLOUT, rsend(fd, buffer, length, flags));
  return NEXT(send)(fd, buffer, length, flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t sendto(int fd, const void* buffer, size_t length, int flags,
                            const sockaddr* address, socklen_t size) try {
  choose_way(fd, address, size);
  if (over_rdma(fd)) return used(fd, EPOLLOUT, rsendto(fd, buffer, length, flags, address, size));
  return NEXT(sendto)(fd, buffer, length, flags, address, size);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) try {
  if (message->msg_controllen != 0 && over_rdma(fd)) {  // which those over RDMA do not support
    (void)become_plain_if_open(fd);
  }
  choose_way(fd, static_cast<const sockaddr*>(message->msg_name), message->msg_namelen);
  if (over_rdma(fd)) return used(fd, EPOLLOUT, rsendmsg(fd, message, flags));
  return NEXT(sendmsg)(fd, message, flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int sendmmsg(int fd, mmsghdr* messages, unsigned int count, int flags) try {
  if (!over_rdma(fd)) return NEXT(sendmmsg)(fd, messages, count, flags);
  int done = 0;
  for (mmsghdr& each : std::span(messages, std::min<size_t>(count, UIO_MAXIOV))) {
    const ssize_t sent = sendmsg(fd, &each.msg_hdr, flags);
    if (sent < 0) return done > 0 ? done : -1;
    each.msg_len = static_cast<unsigned int>(sent);
    ++done;
  }
  return done;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t write(int fd, const void* buffer, size_t length) try {
  if (over_rdma(fd)) return used(fd, EPOLLOUT, rwrite(fd, buffer, length));
  return NEXT(write)(fd, buffer, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t writev(int fd, const iovec* from, int count) try {
  if (over_rdma(fd)) return used(fd, EPOLLOUT, rwritev(fd, from, count));
  return NEXT(writev)(fd, from, count);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t sendfile(int out, int in, off_t* offset, size_t count) try {
  if (!over_rdma(out)) return NEXT(sendfile)(out, in, offset, count);
  std::array<char, 1 << 16> piece;
  size_t done = 0;
  while (done < count) {
    const off_t at = offset != nullptr ? *offset : ::lseek(in, 0, SEEK_CUR);
    const ssize_t got = ::pread(in, piece.data(), std::min(piece.size(), count - done), at);
    const ssize_t sent = got > 0 ? rwrite(out, piece.data(), static_cast<size_t>(got)) : got;
    if (sent <= 0) return used(out, EPOLLOUT, done > 0 ? static_cast<ssize_t>(done) : sent);
    done += static_cast<size_t>(sent);
    if (offset != nullptr)
      *offset += sent;
    else
      (void)::lseek(in, sent, SEEK_CUR);
  }
  return used(out, EPOLLOUT, static_cast<ssize_t>(done));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) try {
  return sendfile(out, in, offset, count);
}
VRDMA_OR_ENOMEM(-1)

// Called by programs that were compiled with -D_FORTIFY_SOURCE.
VRDMA_EXPORT ssize_t __read_chk(int fd, void* buffer, size_t length, size_t room) try {
  if (length > room) __builtin_trap();
  return read(fd, buffer, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t __recv_chk(int fd, void* buffer, size_t length, size_t room, int flags) try {
  if (length > room) __builtin_trap();
  return recv(fd, buffer, length, flags);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t __recvfrom_chk(int fd, void* buffer, size_t length, size_t room, int flags,
                                    sockaddr* address, socklen_t* size) try {
  if (length > room) __builtin_trap();
  return recvfrom(fd, buffer, length, flags, address, size);
}
VRDMA_OR_ENOMEM(-1)

// ---- waiting ------------------------------------------------------------------------------------

namespace {

// Not const: gcc would take what poll() gets for uninitialized.
bool any_over_rdma(pollfd* fds, nfds_t count) {
  return std::any_of(fds, fds + count, [](const pollfd& each) { return over_rdma(each.fd); });
}

bool any_over_rdma(int count, const fd_set* read, const fd_set* write, const fd_set* except) {
  for (int fd = 0; fd < std::min(count, FD_SETSIZE); ++fd)
    for (const fd_set* set : {read, write, except})
      if (set != nullptr && FD_ISSET(fd, set) && over_rdma(fd)) return true;
  return false;
}

}  // namespace

VRDMA_EXPORT int poll(pollfd* fds, nfds_t count, int timeout) try {
  return any_over_rdma(fds, count) ? rpoll(fds, count, timeout) : NEXT(poll)(fds, count, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int ppoll(pollfd* fds, nfds_t count, const timespec* timeout,
                       const sigset_t* mask) try {
  if (!any_over_rdma(fds, count)) return NEXT(ppoll)(fds, count, timeout, mask);
  if (!is_valid_timeout(timeout)) return -1;
  const Masked masked(mask);
  return rpoll(fds, count, milliseconds(timeout));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) try {
  if (room / sizeof *fds < count) __builtin_trap();
  return poll(fds, count, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int select(int count, fd_set* read, fd_set* write, fd_set* except,
                        timeval* timeout) try {
  if (!any_over_rdma(count, read, write, except))
    return NEXT(select)(count, read, write, except, timeout);
  return rselect(count, read, write, except, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                         const timespec* timeout, const sigset_t* mask) try {
  if (!any_over_rdma(count, read, write, except))
    return NEXT(pselect)(count, read, write, except, timeout, mask);
  if (!is_valid_timeout(timeout)) return -1;
  const Masked masked(mask);
  timeval limit{};
  if (timeout != nullptr) limit = {timeout->tv_sec, (timeout->tv_nsec + 999) / 1000};
  return rselect(count, read, write, except, timeout != nullptr ? &limit : nullptr);
}
VRDMA_OR_ENOMEM(-1)

// ---- names, options, flags ----------------------------------------------------------------------

VRDMA_EXPORT int getpeername(int fd, sockaddr* address, socklen_t* length) try {
  return over_rdma(fd) ? rgetpeername(fd, address, length) : NEXT(getpeername)(fd, address, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int getsockname(int fd, sockaddr* address, socklen_t* length) try {
  return over_rdma(fd) ? rgetsockname(fd, address, length) : NEXT(getsockname)(fd, address, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int setsockopt(int fd, int level, int name, const void* value, socklen_t length) try {
  if (over_rdma(fd)) {
    const int done = rsetsockopt(fd, level, name, value, length);
    if (done == 0 || errno != ENOPROTOOPT || !become_plain_if_open(fd)) return done;
  }
  return NEXT(setsockopt)(fd, level, name, value, length);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int getsockopt(int fd, int level, int name, void* value, socklen_t* length) try {
  if (over_rdma(fd)) {
    const int done = rgetsockopt(fd, level, name, value, length);
    const bool lacking = errno == ENOPROTOOPT || errno == EOPNOTSUPP;
    if (done == 0 || !lacking || !become_plain_if_open(fd)) return done;
  }
  return NEXT(getsockopt)(fd, level, name, value, length);
}
VRDMA_OR_ENOMEM(-1)

namespace {

int control(int fd, int command, intptr_t argument) {
  const int done = rfcntl(fd, command, argument);
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? keep(done, 0, way_of(fd)) : done;
}

// Of kernel descriptors: `made` is the result of the copy onto `to`, which may have been a set.
int replaced(int to, int made) {
  if (made >= 0) leave_sets(to);
  return made;
}

}  // namespace

VRDMA_EXPORT int dup(int fd) try {
  return over_rdma_here(fd) ? control(fd, F_DUPFD, 0) : NEXT(dup)(fd);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int dup3(int from, int to, int flags) try {
  if (!over_rdma_here(from) && !over_rdma_here(to))
    return replaced(to, NEXT(dup3)(from, to, flags));
  if (from == to || (flags & ~O_CLOEXEC) != 0) {
    errno = EINVAL;
    return -1;
  }
  if (!over_rdma(from)) {
    if (NEXT(fcntl)(from, F_GETFD) < 0) return -1;  // `to` stays open
    (void)close(to);
    return NEXT(dup3)(from, to, flags);
  }
  (void)close(to);
  const int command = (flags & O_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  const int made = control(from, command, to);
  if (made < 0 || made == to) return made;
  (void)rclose(made);  // another thread has got the number meanwhile
  set_way(made, Way::kKernel);
  errno = EBUSY;
  return -1;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int dup2(int from, int to) try {
  if (over_rdma(from) && from == to) return to;
  if (over_rdma_here(from) || over_rdma_here(to)) return dup3(from, to, 0);
  const int made = NEXT(dup2)(from, to);
  return from != to ? replaced(to, made) : made;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int fcntl(int fd, int command, ...) try {
  va_list list;
  va_start(list, command);
  const auto argument = va_arg(list, intptr_t);
  va_end(list);
  return over_rdma_here(fd) ? control(fd, command, argument) : NEXT(fcntl)(fd, command, argument);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int fcntl64(int fd, int command, ...) try {
  va_list list;
  va_start(list, command);
  const auto argument = va_arg(list, intptr_t);
  va_end(list);
  return over_rdma_here(fd) ? control(fd, command, argument) : NEXT(fcntl64)(fd, command, argument);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int ioctl(int fd, unsigned long request, ...) try {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (!over_rdma(fd)) return NEXT(ioctl)(fd, request, argument);
  switch (request) {
    case FIONBIO:
      return rfcntl(fd, F_SETFL, *static_cast<const int*>(argument) != 0 ? O_NONBLOCK : 0);
    case FIOCLEX:
      return rfcntl(fd, F_SETFD, FD_CLOEXEC);
    case FIONCLEX:
      return rfcntl(fd, F_SETFD, 0);
    case FIONREAD: {
      if (integer_option(fd, SOL_SOCKET, SO_TYPE) != SOCK_DGRAM) break;
      const ssize_t next = rrecv(fd, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
      const int length = next > 0 ? static_cast<int>(next) : 0;
      std::memcpy(argument, &length, sizeof length);  // may be unaligned
      return 0;
    }
    default:
      // For example SIOCGIFCONF, for which programs make a datagram socket.
      if (become_plain_if_open(fd)) return NEXT(ioctl)(fd, request, argument);
  }
  errno = ENOTTY;
  return -1;
}
VRDMA_OR_ENOMEM(-1)
