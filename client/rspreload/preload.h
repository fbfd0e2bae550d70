// Shared by the parts of librspreload.so: which descriptors are sockets over RDMA, and access to
// libc.
#pragma once

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdint>
#include <ctime>

namespace vrdma::rspreload {

enum class Way : uint8_t {
  kKernel,
  kRdma,
  kOpen,  // datagrams over RDMA so far; the first destination decides
};
// By the program's descriptors.
[[nodiscard]] Way way_of(int fd);
void set_way(int fd, Way way);
[[nodiscard]] inline bool over_rdma(int fd) { return way_of(fd) != Way::kKernel; }

// fallback.cc. The option of a socket over RDMA; 0 on failure.
[[nodiscard]] int integer_option(int fd, int level, int name);
// Replaces a socket over RDMA by a kernel socket. False and errno.
bool become_plain(int fd);
// The same if the socket is kOpen. False: it is not.
bool become_plain_if_open(int fd);
// For kOpen: decides by the destination of the first message.
void choose_way(int fd, const sockaddr* to, socklen_t length);
// An error that a kernel socket might not have.
[[nodiscard]] bool leads_nowhere(int error);
[[nodiscard]] bool is_loopback(const sockaddr* address, socklen_t length);

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Applies the signal mask of ppoll(2), pselect(2) and epoll_pwait(2). Unlike in the kernel, not
// atomic with the wait.
class Masked {
 public:
  explicit Masked(const sigset_t* mask) : masked_(mask != nullptr) {
    if (masked_) ::pthread_sigmask(SIG_SETMASK, mask, &before_);
  }
  ~Masked() {
    if (masked_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Masked(const Masked&) = delete;
  Masked& operator=(const Masked&) = delete;

 private:
  bool masked_;
  sigset_t before_{};
};

// Whether the kernel accepts `time` as a timeout; null: there is none. False: errno is EINVAL.
[[nodiscard]] bool is_valid_timeout(const timespec* time);
// Of a valid timeout; null: -1, no limit.
[[nodiscard]] int milliseconds(const timespec* time);

// False in a child that vfork(2) or clone(2) made, such as that of a program that starts another
// one: its descriptors are its own, but its memory may be its parent's.
[[nodiscard]] bool is_own_process();
// The same of a socket over RDMA.
[[nodiscard]] inline bool over_rdma_here(int fd) { return over_rdma(fd) && is_own_process(); }

// epoll.cc. In a forked child, whose sets are its parent's.
void forget_sets();
// The descriptor is closed: removes it from all sets, or deletes the set that it was.
void leave_sets(int fd);
// The descriptor has become a kernel socket: moves it to the kernel's part of its sets.
void become_plain_in_sets(int fd);
// The program has read (EPOLLIN) or written (EPOLLOUT): re-arms EPOLLET.
void used_in_sets(int fd, uint32_t events);

}  // namespace vrdma::rspreload

// libc's function of the same name.
#define NEXT(name)                                                              \
  ([] {                                                                         \
    static auto* const found = vrdma::rspreload::next<decltype(::name)>(#name); \
    return found;                                                               \
  }())
