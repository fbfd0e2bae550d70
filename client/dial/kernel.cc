// System calls of libibverbs.so.1 and librdmacm.so.1. These functions have the names of libc's, but
// are hidden in each library, so the linker prefers them.
//
// librspreload.so interposes libc's functions of these names and implements them by rsocket(7). The
// descriptors that these libraries use, also for sockets over RDMA, belong to the kernel. If one of
// these calls reached librspreload.so, it would recurse. This file defines each name of
// ../rspreload/librspreload.map that the libraries call; tests/lint/kernel_calls.py checks that
// they import none of them.
//
// Errors, EINTR and cancellation are those of libc, except that close() is no cancellation point,
// because destructors call it. A separate translation unit, because waiting()
// must not be inlined into a function with cleanup: syscall(2) is declared nothrow, so the compiler
// would omit the cleanup.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <ctime>

namespace {

// A call that is a cancellation point (pthreads(7)). As in libc, a thread can be cancelled while it
// blocks in the kernel, and only after pthread_cancel(3).
template <class... Args>
long waiting(long number, Args... args) {
  int type = 0;
  ::pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  const long result = ::syscall(number, args...);
  ::pthread_setcanceltype(type, nullptr);
  return result;
}

int control(int fd, int command, intptr_t argument) {
  const bool waits = command == F_SETLKW || command == F_OFD_SETLKW;
  return static_cast<int>(waits ? waiting(SYS_fcntl, fd, command, argument)
                                : ::syscall(SYS_fcntl, fd, command, argument));
}

}  // namespace

extern "C" {

int close(int fd) { return static_cast<int>(::syscall(SYS_close, fd)); }
ssize_t read(int fd, void* buffer, size_t length) { return waiting(SYS_read, fd, buffer, length); }

int poll(pollfd* fds, nfds_t count, int timeout) {
  timespec limit{timeout / 1000, timeout % 1000 * 1'000'000L};
  return static_cast<int>(
      waiting(SYS_ppoll, fds, count, timeout < 0 ? nullptr : &limit, nullptr, size_t{0}));
}
int epoll_ctl(int set, int command, int fd, epoll_event* event) {
  return static_cast<int>(::syscall(SYS_epoll_ctl, set, command, fd, event));
}
int epoll_wait(int set, epoll_event* events, int room, int timeout) {
  return static_cast<int>(waiting(SYS_epoll_pwait, set, events, room, timeout, nullptr, size_t{0}));
}

int socket(int domain, int type, int protocol) {
  return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}
int bind(int fd, const sockaddr* address, socklen_t length) {
  return static_cast<int>(::syscall(SYS_bind, fd, address, length));
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  return static_cast<int>(waiting(SYS_connect, fd, address, length));
}
ssize_t recv(int fd, void* buffer, size_t length, int flags) {
  return waiting(SYS_recvfrom, fd, buffer, length, flags, nullptr, nullptr);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return waiting(SYS_recvmsg, fd, message, flags);
}
ssize_t send(int fd, const void* from, size_t length, int flags) {
  return waiting(SYS_sendto, fd, from, length, flags, nullptr, socklen_t{0});
}
ssize_t sendto(int fd, const void* from, size_t length, int flags, const sockaddr* to,
               socklen_t size) {
  return waiting(SYS_sendto, fd, from, length, flags, to, size);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return waiting(SYS_sendmsg, fd, message, flags);
}
int shutdown(int fd, int how) { return static_cast<int>(::syscall(SYS_shutdown, fd, how)); }
int getpeername(int fd, sockaddr* address, socklen_t* length) {
  return static_cast<int>(::syscall(SYS_getpeername, fd, address, length));
}
int getsockname(int fd, sockaddr* address, socklen_t* length) {
  return static_cast<int>(::syscall(SYS_getsockname, fd, address, length));
}
int getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, length));
}
int setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  return static_cast<int>(::syscall(SYS_setsockopt, fd, level, name, value, length));
}

int dup3(int from, int to, int flags) {
  return static_cast<int>(::syscall(SYS_dup3, from, to, flags));
}
int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const auto argument = va_arg(list, intptr_t);
  va_end(list);
  return control(fd, command, argument);
}
int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // extern "C"
