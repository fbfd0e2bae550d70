// Whether the process has a single thread; cheap enough for millions of calls per second.
//
// glibc tells this since 2.32 in __libc_single_threaded. The drop-in libraries also run with older
// versions, so they do not link to the variable but look it up when they are loaded. On x86-64,
// glibc before 2.32 stores the same information in each thread's control block: it is set when a
// new thread starts, and in the first thread when pthread_create() returns. Without both, and
// before the constructors of this library have run, the answer is "no".
//
// "No" is always safe. "Yes" holds until the calling thread creates another one. As with glibc's
// variable, threads created by clone(2) without libc are not seen.
#pragma once

#include <cstdint>

namespace vrdma::base {

namespace single_thread {

// glibc's variable; or a constant 0; or nullptr: read the thread's control block.
__attribute__((visibility("hidden"))) extern const char* flag;

// Reads tcbhead_t::multiple_threads of glibc 2.27 to 2.31, sysdeps/x86_64/nptl/tls.h. The layout of
// these releases is final; the test images_small sees both answers with one of them.
inline bool in_control_block() {
#if defined(__x86_64__)
  int32_t multiple = 1;
  __asm__("movl %%fs:0x18, %0" : "=r"(multiple));
  return multiple == 0;
#else
  return false;
#endif
}

}  // namespace single_thread

[[nodiscard]] inline bool is_single_threaded() {
  const char* const flag = single_thread::flag;
  if (flag != nullptr) [[likely]]
    return *flag != 0;
  return single_thread::in_control_block();
}

}  // namespace vrdma::base
