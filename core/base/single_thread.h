// Whether the process has a single thread, asked millions of times a second.
//
// glibc says so since 2.32 in __libc_single_threaded. The drop-in libraries also run with older
// ones, so they do not link to it: the variable is looked up when the library is loaded. On x86-64
// glibc before 2.32 keeps the same knowledge in each thread's control block; a thread finds its own
// set as soon as it runs, and the first thread its own when pthread_create() returns. Where neither
// is there, and before the constructors of this library have run, the answer is "no".
//
// "No" is always safe. "Yes" holds until the calling thread makes another one. As with glibc's own
// variable, threads made by clone(2) without libc are not seen.
#pragma once

#include <cstdint>

namespace vrdma::base {

namespace single_thread {

// glibc's variable; or a constant 0; or nullptr: ask the thread's control block.
__attribute__((visibility("hidden"))) extern const char* flag;

// Reads tcbhead_t::multiple_threads of glibc 2.27 to 2.31, sysdeps/x86_64/nptl/tls.h. These
// releases are made and their layout is final; images_small runs both answers with one of them.
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
