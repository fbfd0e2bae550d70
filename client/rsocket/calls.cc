// The exported calls of rsocket(7).
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <new>

#include "client/dial/export.h"
#include "client/dial/guard.h"
#include "client/rdmacm/link.h"
#include "client/rsocket/datagram.h"
#include "client/rsocket/stream.h"
#include "client/rsocket/vdevices_only.h"

namespace vrdma::client {

int poll_sockets(pollfd* fds, nfds_t count, int timeout);
int select_sockets(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout);
bool close_poll_set(int fd);

namespace {

// Converts a negative errno to -1 and errno.
template <class T>
T result(T value) {
  if (value >= 0) return value;
  errno = static_cast<int>(-value);
  return -1;
}

int fail(int error) { return result(-error); }

// Calls `what` with the socket of the descriptor.
template <class What>
auto with(int fd, What what) -> decltype(what(*RSocket::find(fd))) {
  auto socket = RSocket::find(fd);
  if (socket == nullptr) return -1;
  const auto value = what(*socket);
  socket.reset();  // if it was closed meanwhile, it is destroyed here, which must not change errno
  return result(value);
}

int check_address(const sockaddr* address, socklen_t length) {
  if (address == nullptr) return -EFAULT;
  if (length < sizeof address->sa_family) return -EINVAL;
  if (address->sa_family == AF_INET) return length < sizeof(sockaddr_in) ? -EINVAL : 0;
  if (address->sa_family == AF_INET6) return length < sizeof(sockaddr_in6) ? -EINVAL : 0;
  return -EAFNOSUPPORT;
}

int make(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return -ENOTSUP;
  std::shared_ptr<RSocket> socket;
  if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP))
    socket = std::make_shared<RStream>(domain);
  else if (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP))
    socket = std::make_shared<RDatagram>(domain);
  else
    return -ENOTSUP;
  if (const int error = socket->open(); error != 0) return error;
  RSocket::enter(socket);
  return socket->fd();
}

int accept(RSocket& listener, sockaddr* address, socklen_t* length) {
  std::shared_ptr<RSocket> made;
  if (const int error = listener.accept(&made); error != 0) return error;
  RSocket::enter(made);
  if (address != nullptr && length != nullptr) (void)made->name(true, address, length);
  return made->fd();
}

// As recvfrom(2): the address truncated to `length`, and its full length.
void give_address(const sockaddr_storage& from, void* to, socklen_t* length) {
  const socklen_t size = from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(to, &from, std::min(*length, size));
  *length = size;
}

ssize_t receive_from(RSocket& socket, const iovec& to, int flags, sockaddr* address,
                     socklen_t* length) {
  RsOrigin origin;
  const ssize_t got = socket.receive(&to, 1, flags, &origin);
  if (got < 0 || address == nullptr || length == nullptr) return got;
  if (origin.address.ss_family == AF_UNSPEC)
    (void)socket.name(true, address, length);
  else
    give_address(origin.address, address, length);
  return got;
}

ssize_t receive(RSocket& socket, msghdr* message, int flags) {
  if (message->msg_iovlen > IOV_MAX) return -EMSGSIZE;
  RsOrigin origin;
  const ssize_t got = socket.receive(message->msg_iov, message->msg_iovlen, flags, &origin);
  if (got < 0) return got;
  if (origin.address.ss_family == AF_UNSPEC || message->msg_name == nullptr)
    message->msg_namelen = 0;
  else
    give_address(origin.address, message->msg_name, &message->msg_namelen);
  message->msg_controllen = 0;
  message->msg_flags = origin.cut ? MSG_TRUNC : 0;
  return got;
}

ssize_t send(RSocket& socket, const msghdr* message, int flags) {
  if (message->msg_iovlen > IOV_MAX) return -EMSGSIZE;
  if (message->msg_controllen != 0) return -ENOTSUP;
  const auto* to = static_cast<const sockaddr*>(message->msg_name);
  if (to != nullptr)
    if (const int error = check_address(to, message->msg_namelen); error != 0) return error;
  return socket.send(message->msg_iov, message->msg_iovlen, flags, to);
}

int control(RSocket& socket, int fd, int command, intptr_t argument) {
  switch (command) {
    case F_GETFL:
      return O_RDWR | (socket.nonblocking() ? O_NONBLOCK : 0);
    case F_SETFL:
      socket.set_nonblocking((argument & O_NONBLOCK) != 0);
      return 0;
    case F_GETFD:
    case F_SETFD: {
      const int done = ::fcntl(fd, command, argument);
      return done < 0 ? -errno : done;
    }
    default:
      return -EINVAL;
  }
}

}  // namespace
}  // namespace vrdma::client

using namespace vrdma::client;  // NOLINT: this part is nothing but the way from C

VRDMA_EXPORT int rsocket(int domain, int type, int protocol) try {
  if ((type & kVdevicesOnly) != 0 && !ours()) return fail(ENODEV);
  VRDMA_PASS_ON(-1, rsocket, domain, type, protocol)
  return result(make(domain, type & ~kVdevicesOnly, protocol));
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rbind(int fd, const sockaddr* addr, socklen_t length) try {
  VRDMA_PASS_ON(-1, rbind, fd, addr, length)
  return with(fd, [&](RSocket& socket) {
    const int error = check_address(addr, length);
    return error != 0 ? error : socket.bind(addr);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rlisten(int fd, int backlog) try {
  VRDMA_PASS_ON(-1, rlisten, fd, backlog)
  return with(fd, [&](RSocket& socket) { return socket.listen(backlog); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int raccept(int fd, sockaddr* addr, socklen_t* length) try {
  VRDMA_PASS_ON(-1, raccept, fd, addr, length)
  return with(fd, [&](RSocket& socket) { return accept(socket, addr, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rconnect(int fd, const sockaddr* addr, socklen_t length) try {
  VRDMA_PASS_ON(-1, rconnect, fd, addr, length)
  return with(fd, [&](RSocket& socket) {
    const int error = check_address(addr, length);
    // AF_UNSPEC dissolves the association of a datagram socket.
    if (error == -EAFNOSUPPORT && addr->sa_family == AF_UNSPEC) return socket.connect(addr);
    return error != 0 ? error : socket.connect(addr);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rshutdown(int fd, int how) try {
  VRDMA_PASS_ON(-1, rshutdown, fd, how)
  return with(fd, [&](RSocket& socket) { return socket.shutdown(how); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rclose(int fd) try {
  VRDMA_PASS_ON(-1, rclose, fd)
  if (!RSocket::is_own_process()) return ::close(fd);
  if (close_poll_set(fd)) return 0;
  bool last = false;
  const auto socket = RSocket::remove(fd, &last);
  if (socket == nullptr) return RSocket::are_forgotten() ? ::close(fd) : -1;
  if (last) socket->close();
  return 0;
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rrecv(int fd, void* buf, size_t len, int flags) try {
  VRDMA_PASS_ON(-1, rrecv, fd, buf, len, flags)
  const iovec to{buf, len};
  return with(fd, [&](RSocket& socket) { return socket.receive(&to, 1, flags, nullptr); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rrecvfrom(int fd, void* buf, size_t len, int flags, sockaddr* addr,
                               socklen_t* length) try {
  VRDMA_PASS_ON(-1, rrecvfrom, fd, buf, len, flags, addr, length)
  const iovec to{buf, len};
  return with(fd, [&](RSocket& socket) { return receive_from(socket, to, flags, addr, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rrecvmsg(int fd, msghdr* msg, int flags) try {
  VRDMA_PASS_ON(-1, rrecvmsg, fd, msg, flags)
  return with(fd, [&](RSocket& socket) { return receive(socket, msg, flags); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rsend(int fd, const void* buf, size_t len, int flags) try {
  VRDMA_PASS_ON(-1, rsend, fd, buf, len, flags)
  const iovec from{const_cast<void*>(buf), len};
  return with(fd, [&](RSocket& socket) { return socket.send(&from, 1, flags, nullptr); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rsendto(int fd, const void* buf, size_t len, int flags, const sockaddr* addr,
                             socklen_t length) try {
  VRDMA_PASS_ON(-1, rsendto, fd, buf, len, flags, addr, length)
  const iovec from{const_cast<void*>(buf), len};
  return with(fd, [&](RSocket& socket) -> ssize_t {
    if (addr != nullptr)
      if (const int error = check_address(addr, length); error != 0) return error;
    return socket.send(&from, 1, flags, addr);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rsendmsg(int fd, const msghdr* msg, int flags) try {
  VRDMA_PASS_ON(-1, rsendmsg, fd, msg, flags)
  return with(fd, [&](RSocket& socket) { return send(socket, msg, flags); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rread(int fd, void* buf, size_t count) try {
  VRDMA_PASS_ON(-1, rread, fd, buf, count)
  return rrecv(fd, buf, count, 0);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rreadv(int fd, const iovec* iov, int count) try {
  VRDMA_PASS_ON(-1, rreadv, fd, iov, count)
  if (count < 0 || count > IOV_MAX) return fail(EINVAL);
  return with(fd, [&](RSocket& socket) {
    return socket.receive(iov, static_cast<size_t>(count), 0, nullptr);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rwrite(int fd, const void* buf, size_t count) try {
  VRDMA_PASS_ON(-1, rwrite, fd, buf, count)
  return rsend(fd, buf, count, 0);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT ssize_t rwritev(int fd, const iovec* iov, int count) try {
  VRDMA_PASS_ON(-1, rwritev, fd, iov, count)
  if (count < 0 || count > IOV_MAX) return fail(EINVAL);
  return with(fd, [&](RSocket& socket) {
    return socket.send(iov, static_cast<size_t>(count), 0, nullptr);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rpoll(pollfd* fds, nfds_t nfds, int timeout) try {
  VRDMA_PASS_ON(-1, rpoll, fds, nfds, timeout)
  return poll_sockets(fds, nfds, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rselect(int nfds, fd_set* readfds, fd_set* writefds, fd_set* exceptfds,
                         timeval* timeout) try {
  VRDMA_PASS_ON(-1, rselect, nfds, readfds, writefds, exceptfds, timeout)
  return select_sockets(nfds, readfds, writefds, exceptfds, timeout);
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rgetpeername(int fd, sockaddr* addr, socklen_t* length) try {
  VRDMA_PASS_ON(-1, rgetpeername, fd, addr, length)
  return with(fd, [&](RSocket& socket) { return socket.name(true, addr, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rgetsockname(int fd, sockaddr* addr, socklen_t* length) try {
  VRDMA_PASS_ON(-1, rgetsockname, fd, addr, length)
  return with(fd, [&](RSocket& socket) { return socket.name(false, addr, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rsetsockopt(int fd, int level, int name, const void* value, socklen_t length) try {
  VRDMA_PASS_ON(-1, rsetsockopt, fd, level, name, value, length)
  return with(fd, [&](RSocket& socket) { return socket.set_option(level, name, value, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rgetsockopt(int fd, int level, int name, void* value, socklen_t* length) try {
  VRDMA_PASS_ON(-1, rgetsockopt, fd, level, name, value, length)
  return with(fd, [&](RSocket& socket) { return socket.get_option(level, name, value, length); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int rfcntl(int fd, int cmd, ...) try {
  va_list list;
  va_start(list, cmd);
  const auto argument = va_arg(list, intptr_t);
  va_end(list);
  VRDMA_PASS_ON(-1, rfcntl, fd, cmd, argument)
  return with(fd, [&](RSocket& socket) {
    if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
      return RSocket::duplicate(fd, cmd, static_cast<int>(argument));
    return control(socket, fd, cmd, argument);
  });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT off_t riomap(int fd, void* buf, size_t len, int prot, int flags, off_t offset) try {
  VRDMA_PASS_ON(-1, riomap, fd, buf, len, prot, flags, offset)
  return with(fd, [&](RSocket& socket) { return socket.map(buf, len, prot, offset); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT int riounmap(int fd, void* buf, size_t len) try {
  VRDMA_PASS_ON(-1, riounmap, fd, buf, len)
  return with(fd, [&](RSocket& socket) { return socket.unmap(buf, len); });
}
VRDMA_OR_ENOMEM(-1)

VRDMA_EXPORT size_t riowrite(int fd, const void* buf, size_t count, off_t offset, int flags) try {
  VRDMA_PASS_ON(static_cast<size_t>(-1), riowrite, fd, buf, count, offset, flags)
  return static_cast<size_t>(
      with(fd, [&](RSocket& socket) { return socket.write_mapped(buf, count, offset, flags); }));
}
VRDMA_OR_ENOMEM(static_cast<size_t>(-1))
