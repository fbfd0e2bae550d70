#include "core/base/single_thread.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstdlib>

namespace vrdma::base {

namespace {

constexpr char kUnknown = 0;

// Whether this glibc keeps `multiple_threads` where in_control_block() reads it.
bool has_control_block() {
#if defined(__x86_64__)
  // "2.31"; all versions after 2.31 have the variable.
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

// Runs before the constructors of C++ objects, because some of them take locks.
__attribute__((constructor(101))) static void find_flag() {
  if (const void* found = ::dlsym(RTLD_DEFAULT, "__libc_single_threaded"); found != nullptr)
    single_thread::flag = static_cast<const char*>(found);
  else if (has_control_block())
    single_thread::flag = nullptr;
}

}  // namespace vrdma::base
