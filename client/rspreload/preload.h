// What the parts of librspreload.so share: which descriptors are over RDMA, and the way to libc.
#pragma once

#include <dlfcn.h>
#include <sys/epoll.h>

#include <csignal>
#include <ctime>

namespace vrdma::rspreload {

// The library itself uses descriptors, also those that it gave to the program: while there is one
// of these, nothing is over RDMA.
struct Inside {
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

[[nodiscard]] bool over_rdma(int fd);

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
// It is a socket of TCP from now on, which the kernel's part of its sets is to have.
void become_tcp_in_sets(int fd);
// The program has read (EPOLLIN) or written (EPOLLOUT): with EPOLLET it is to hear of it again.
void used_in_sets(int fd, uint32_t events);

}  // namespace vrdma::rspreload

// libc's function of the same name.
#define NEXT(name)                                                              \
  ([] {                                                                         \
    static auto* const found = vrdma::rspreload::next<decltype(::name)>(#name); \
    return found;                                                               \
  }())
