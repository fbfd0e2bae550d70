// Access of the memory table to memory: direct system calls, and unwatched copies.
//
// Programs hook libc's functions to learn when registered memory goes away (UCX does). The exchange
// of pages leaves memory where it is, so it must not trigger these hooks.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace vrdma::client {

constexpr uint64_t kPage = 4096;
constexpr uint64_t page_down(uint64_t address) { return address & ~(kPage - 1); }
constexpr uint64_t page_up(uint64_t address) { return page_down(address + kPage - 1); }

namespace raw {

template <class... Args>
long call(long number, Args... args) {
  return ::syscall(number, args...);
}
inline void* mmap(void* at, size_t size, int prot, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(call(SYS_mmap, at, size, prot, flags, fd, offset));
}
inline void* mremap(void* from, size_t old_size, size_t new_size, int flags, void* to) {
  return reinterpret_cast<void*>(call(SYS_mremap, from, old_size, new_size, flags, to));
}
inline int munmap(void* at, size_t size) { return static_cast<int>(call(SYS_munmap, at, size)); }
inline int madvise(void* at, size_t size, int advice) {
  return static_cast<int>(call(SYS_madvise, at, size, advice));
}
inline int mprotect(void* at, size_t size, int prot) {
  return static_cast<int>(call(SYS_mprotect, at, size, prot));
}

}  // namespace raw

// Whole pages may contain bytes that the program must not touch, such as red zones of a sanitizer
// that intercepts memcpy. This copy is not intercepted.
inline void copy_pages(void* to, const void* from, size_t size) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
#elif defined(__aarch64__)
  for (; size != 0; size -= 16)
    asm volatile("ldp x8, x9, [%1], 16\n\tstp x8, x9, [%0], 16"
                 : "+r"(to), "+r"(from)
                 :
                 : "x8", "x9", "memory");
#endif
}

// Blocks signals while memory changes under the program.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace vrdma::client
