#include "client/verbs/real.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iterator>

extern "C" {
__attribute__((visibility("hidden"))) extern std::atomic<void*> vrdma_slots[];
__attribute__((visibility("hidden"))) void* vrdma_resolve(size_t slot);
}

namespace vrdma::client {
namespace {

#if defined(__x86_64__)
#define VRDMA_MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define VRDMA_MULTIARCH "aarch64-linux-gnu"
#endif

constexpr const char* kPaths[] = {
    "/usr/lib/" VRDMA_MULTIARCH "/libibverbs.so.1",
    "/lib/" VRDMA_MULTIARCH "/libibverbs.so.1",
    "/usr/lib64/libibverbs.so.1",
    "/lib64/libibverbs.so.1",
    "/usr/lib/libibverbs.so.1",
    "/lib/libibverbs.so.1",
};

// Calls that find no function, by what their kind of function returns.
int answer_error() { return errno = ENOSYS; }
void* answer_null() {
  errno = ENOSYS;
  return nullptr;
}
long answer_minus_one() {
  errno = ENOSYS;
  return -1;
}
long answer_negative() {
  errno = ENOSYS;
  return -ENOSYS;
}
long answer_zero() { return 0; }

struct RealSymbol {
  const char* name;
  const char* version;
  void* answer;
};

const RealSymbol kSymbols[] = {
#define CALLED(name, version, answer) {#name, #version, reinterpret_cast<void*>(&answer_##answer)},
#define PASSED CALLED
#define COMPAT CALLED
#include "client/verbs/real_symbols.def"
#undef CALLED
#undef PASSED
#undef COMPAT
};

// nullptr: not looked for yet; kNone: looked for and not found.
void* const kNone = reinterpret_cast<void*>(-1);
constinit std::atomic<void*> library{nullptr};

// What this code was loaded from. Not kept in a static: its guard would be a lock held across a
// call into the loader.
struct Own {
  Dl_info info{};
  link_map* map = nullptr;
  Own() {
    ::dladdr1(reinterpret_cast<void*>(&vrdma_resolve), &info, reinterpret_cast<void**>(&map),
              RTLD_DL_LINKMAP);
  }
};

bool is_own_file(const char* path) {
  struct stat theirs, ours;
  return ::stat(path, &theirs) == 0 && ::stat(Own().info.dli_fname, &ours) == 0 &&
         theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

void* load(const char* path) {
  if (is_own_file(path)) return nullptr;
  void* handle = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  // A path that became ours between the two looks, or that is ours by a name stat(2) did not see
  // through (an overlay): calls into it would return to us for ever.
  link_map* loaded = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &loaded) == 0 && loaded != Own().map) return handle;
  ::dlclose(handle);
  return nullptr;
}

void* find() {
  if (const char* path = ::secure_getenv("VRDMA_REAL_LIBIBVERBS"); path != nullptr) {
    void* handle = load(path);
    return handle != nullptr ? handle : kNone;
  }
  for (const char* path : kPaths)
    if (void* handle = load(path); handle != nullptr) return handle;
  return kNone;
}

// The handle, or kNone. Threads that come here together each load the library; the loader counts,
// and all but the first give their count back.
void* real_library() {
  void* known = library.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  const int saved = errno;
  void* found = find();
  if (!library.compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
    if (found != kNone) ::dlclose(found);
    found = known;
  }
  errno = saved;
  return found;
}

void* real_symbol(const char* name, const char* version) {
  void* const handle = real_library();
  return handle == kNone ? nullptr : ::dlvsym(handle, name, version);
}

}  // namespace

bool real_library_available() { return real_library() != kNone; }

const bool* real_allow_disassociate_destroy() {
  return static_cast<const bool*>(
      real_symbol("verbs_allow_disassociate_destroy", "IBVERBS_PRIVATE_34"));
}

}  // namespace vrdma::client

// Called by the trampoline of `slot` until the slot leads to the function itself.
void* vrdma_resolve(size_t slot) {
  using vrdma::client::kSymbols;
  const auto& symbol = kSymbols[slot];
  const int saved = errno;
  void* function = vrdma::client::real_symbol(symbol.name, symbol.version);
  if (function == nullptr) function = symbol.answer;
  vrdma_slots[slot].store(function, std::memory_order_release);
  errno = saved;
  return function;
}
