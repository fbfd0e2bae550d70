// What the library does not do on vdevices yet: enhanced connection establishment, and sockets over
// RDMA. Where the system's library serves the process, it does.
#include <rdma/rsocket.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "client/rdmacm/link.h"
#include "client/verbs/export.h"

namespace {

int unsupported() {
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

#define VRDMA_UNSUPPORTED(type, name, parameters, ...)      \
  VRDMA_EXPORT type name parameters {                       \
    VRDMA_PASS_ON(static_cast<type>(-1), name, __VA_ARGS__) \
    return static_cast<type>(unsupported());                \
  }

VRDMA_UNSUPPORTED(int, rdma_set_local_ece, (rdma_cm_id * id, ibv_ece* ece), id, ece)
VRDMA_UNSUPPORTED(int, rdma_get_remote_ece, (rdma_cm_id * id, ibv_ece* ece), id, ece)

VRDMA_UNSUPPORTED(int, rsocket, (int domain, int type, int protocol), domain, type, protocol)
VRDMA_UNSUPPORTED(int, rbind, (int fd, const sockaddr* addr, socklen_t length), fd, addr, length)
VRDMA_UNSUPPORTED(int, rlisten, (int fd, int backlog), fd, backlog)
VRDMA_UNSUPPORTED(int, raccept, (int fd, sockaddr* addr, socklen_t* length), fd, addr, length)
VRDMA_UNSUPPORTED(int, rconnect, (int fd, const sockaddr* addr, socklen_t length), fd, addr, length)
VRDMA_UNSUPPORTED(int, rshutdown, (int fd, int how), fd, how)
VRDMA_UNSUPPORTED(int, rclose, (int fd), fd)
VRDMA_UNSUPPORTED(ssize_t, rrecv, (int fd, void* buf, size_t len, int flags), fd, buf, len, flags)
VRDMA_UNSUPPORTED(ssize_t, rrecvfrom,
                  (int fd, void* buf, size_t len, int flags, sockaddr* addr, socklen_t* length), fd,
                  buf, len, flags, addr, length)
VRDMA_UNSUPPORTED(ssize_t, rrecvmsg, (int fd, msghdr* msg, int flags), fd, msg, flags)
VRDMA_UNSUPPORTED(ssize_t, rsend, (int fd, const void* buf, size_t len, int flags), fd, buf, len,
                  flags)
VRDMA_UNSUPPORTED(ssize_t, rsendto,
                  (int fd, const void* buf, size_t len, int flags, const sockaddr* addr,
                   socklen_t length),
                  fd, buf, len, flags, addr, length)
VRDMA_UNSUPPORTED(ssize_t, rsendmsg, (int fd, const msghdr* msg, int flags), fd, msg, flags)
VRDMA_UNSUPPORTED(ssize_t, rread, (int fd, void* buf, size_t count), fd, buf, count)
VRDMA_UNSUPPORTED(ssize_t, rreadv, (int fd, const iovec* iov, int count), fd, iov, count)
VRDMA_UNSUPPORTED(ssize_t, rwrite, (int fd, const void* buf, size_t count), fd, buf, count)
VRDMA_UNSUPPORTED(ssize_t, rwritev, (int fd, const iovec* iov, int count), fd, iov, count)
VRDMA_UNSUPPORTED(int, rpoll, (pollfd * fds, nfds_t nfds, int timeout), fds, nfds, timeout)
VRDMA_UNSUPPORTED(int, rselect,
                  (int nfds, fd_set* readfds, fd_set* writefds, fd_set* exceptfds,
                   timeval* timeout),
                  nfds, readfds, writefds, exceptfds, timeout)
VRDMA_UNSUPPORTED(int, rgetpeername, (int fd, sockaddr* addr, socklen_t* length), fd, addr, length)
VRDMA_UNSUPPORTED(int, rgetsockname, (int fd, sockaddr* addr, socklen_t* length), fd, addr, length)
VRDMA_UNSUPPORTED(int, rsetsockopt,
                  (int fd, int level, int name, const void* value, socklen_t length), fd, level,
                  name, value, length)
VRDMA_UNSUPPORTED(int, rgetsockopt, (int fd, int level, int name, void* value, socklen_t* length),
                  fd, level, name, value, length)
VRDMA_UNSUPPORTED(off_t, riomap, (int fd, void* buf, size_t len, int prot, int flags, off_t offset),
                  fd, buf, len, prot, flags, offset)
VRDMA_UNSUPPORTED(int, riounmap, (int fd, void* buf, size_t len), fd, buf, len)
VRDMA_UNSUPPORTED(size_t, riowrite,
                  (int fd, const void* buf, size_t count, off_t offset, int flags), fd, buf, count,
                  offset, flags)

VRDMA_EXPORT int rfcntl(int fd, int cmd, ...) {
  va_list list;
  va_start(list, cmd);
  const auto argument = va_arg(list, intptr_t);
  va_end(list);
  VRDMA_PASS_ON(-1, rfcntl, fd, cmd, argument)
  return unsupported();
}
