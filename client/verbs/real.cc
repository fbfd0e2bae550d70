#include "client/verbs/real.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "client/dial/find_real.h"

extern "C" {
__attribute__((visibility("hidden"))) extern std::atomic<void*> vrdma_slots[];
__attribute__((visibility("hidden"))) void* vrdma_resolve(size_t slot);
}

namespace vrdma::client {
namespace {

// Targets of calls for which there is no function, by the kind of result.
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

// nullptr: not searched yet; kNone: not found.
void* const kNone = reinterpret_cast<void*>(-1);
constinit std::atomic<void*> library{nullptr};

// The handle, or kNone. If several threads load the library at once, all but the first close their
// handle again; the loader counts references.
void* real_library() {
  void* known = library.load(std::memory_order_acquire);
  if (known != nullptr) return known;
  const int saved = errno;
  void* found = find_real("libibverbs.so.1", "VRDMA_REAL_LIBIBVERBS");
  if (found == nullptr) found = kNone;
  if (!library.compare_exchange_strong(known, found, std::memory_order_acq_rel)) {
    if (found != kNone) ::dlclose(found);
    found = known;
  }
  errno = saved;
  return found;
}

// The private ABI between libibverbs and its providers has a version of private_nodes.def. A
// library has only one of them, so the name alone is enough.
constexpr const char* kPrivate = "IBVERBS_PRIVATE";

void* real_symbol(const char* name, const char* version) {
  void* const handle = real_library();
  if (handle == kNone) return nullptr;
  return std::strcmp(version, kPrivate) == 0 ? ::dlsym(handle, name)
                                             : ::dlvsym(handle, name, version);
}

}  // namespace

bool real_library_available() { return real_library() != kNone; }

const bool* real_allow_disassociate_destroy() {
  return static_cast<const bool*>(real_symbol("verbs_allow_disassociate_destroy", kPrivate));
}

}  // namespace vrdma::client

// The trampoline of `slot` calls this until the slot points to the function itself.
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
