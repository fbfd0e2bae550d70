// The real libibverbs. The first call that needs it finds it (find_real.h, or
// VRDMA_REAL_LIBIBVERBS) and loads it. Its providers ask the loader for "libibverbs.so.1", get this
// library, and so register with the real one through the trampolines here.
//
// No lock is held while it is loaded: the constructors of a provider library may call this library
// from inside the loader, on another thread.
#pragma once

#include <infiniband/verbs.h>

#include "client/verbs/newer_abi.h"
#include "client/verbs/private_abi.h"

namespace vrdma::client {

// True if there is a real library. The first call tries to load it.
bool real_library_available();

// The real library's `verbs_allow_disassociate_destroy`, or nullptr.
const bool* real_allow_disassociate_destroy();

}  // namespace vrdma::client

// real_ibv_alloc_pd(...) etc. call the real library's function of that name (trampolines.S).
// Without a real library they return the `answer` in real_symbols.def.
extern "C" {
#define CALLED(name, version, answer) \
  decltype(::name) real_##name __attribute__((visibility("hidden")));
#define PASSED(name, version, answer)
#define COMPAT(name, version, answer)
#include "client/verbs/real_symbols.def"
#undef CALLED
#undef PASSED
#undef COMPAT
}
