// What the parts of librspreload.so share: which descriptors are over RDMA, and the way to libc.
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
  kOpen,  // over RDMA so far: of datagrams, and not yet known where they go
};
// Of the program's descriptors.
[[nodiscard]] Way way_of(int fd);
void set_way(int fd, Way way);
[[nodiscard]] inline bool over_rdma(int fd) { return way_of(fd) != Way::kKernel; }

// fallback.cc. Of a socket over RDMA; 0 if it cannot be told.
[[nodiscard]] int integer_option(int fd, int level, int name);
// From now on it is a socket of the kernel. False and errno.
bool become_plain(int fd);
// The same for one that is open. False: it is none.
bool become_plain_if_open(int fd);
// Of an open one: where its first message goes decides.
void choose_way(int fd, const sockaddr* to, socklen_t length);
// An error that a socket of the kernel might not have.
[[nodiscard]] bool leads_nowhere(int error);
[[nodiscard]] bool is_loopback(const sockaddr* address, socklen_t length);

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The signals of ppoll(2) and its like. Not in one step with what follows, as it would be in the
// kernel.
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

// -1: for ever.
[[nodiscard]] int milliseconds(const timespec* time);

// epoll.cc. The descriptor is closed: no set has it any more, or, as a set, it has nothing.
void leave_sets(int fd);
// It is a socket of the kernel from now on, and in the kernel's part of its sets.
void become_plain_in_sets(int fd);
// The program has read (EPOLLIN) or written (EPOLLOUT): with EPOLLET it is to hear of it again.
void used_in_sets(int fd, uint32_t events);

}  // namespace vrdma::rspreload

// libc's function of the same name.
#define NEXT(name)                                                              \
  ([] {                                                                         \
    static auto* const found = vrdma::rspreload::next<decltype(::name)>(#name); \
    return found;                                                               \
  }())
