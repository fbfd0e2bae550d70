// The real libibverbs: found (find_real.h, or VRDMA_REAL_LIBIBVERBS), loaded and entered on the
// first call that needs it. Its providers ask the loader for
// "libibverbs.so.1", are given ours, and so register through our trampolines with the real one.
//
// No lock is held while it is loaded: the constructors of a provider library may call us from
// inside the loader, on another thread.
#pragma once

#include <infiniband/verbs.h>

#include "client/verbs/newer_abi.h"
#include "client/verbs/private_abi.h"

namespace vrdma::client {

// Is there a real library? Loads it if that was not tried yet.
bool real_library_available();

// The real library's own `verbs_allow_disassociate_destroy`, or nullptr.
const bool* real_allow_disassociate_destroy();

}  // namespace vrdma::client

// real_ibv_alloc_pd(...) and so on call the real library's function of that name (trampolines.S).
// Without a real library they give the answer that real_symbols.def states.
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
