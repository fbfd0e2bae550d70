#include "core/base/single_thread.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstdlib>

namespace vrdma::base {

namespace {

constexpr char kUnknown = 0;

// Does this glibc keep `multiple_threads` where in_control_block() looks?
bool has_control_block() {
#if defined(__x86_64__)
  // "2.31"; all that come after 2.31 have the variable.
  char* end = nullptr;
  const char* version = ::gnu_get_libc_version();
  if (std::strtol(version, &end, 10) != 2 || *end != '.') return false;
  const long minor = std::strtol(end + 1, nullptr, 10);
  return minor >= 27 && minor <= 31;
#else
  return false;
#endif
}

}  // namespace

namespace single_thread {

constinit const char* flag = &kUnknown;

}  // namespace single_thread

// Before constructors of C++ objects: some of them take locks.
__attribute__((constructor(101))) static void find_flag() {
  if (const void* found = ::dlsym(RTLD_DEFAULT, "__libc_single_threaded"); found != nullptr)
    single_thread::flag = static_cast<const char*>(found);
  else if (has_control_block())
    single_thread::flag = nullptr;
}

}  // namespace vrdma::base
