// Finding and loading the distribution's library behind a drop-in, which has the same SONAME: a
// search by name would find ourselves. Compiled into each drop-in.
//
// In the absolute path that the environment variable `variable` holds (ignored in set-uid
// programs), or else in the loader's default directories. RTLD_LOCAL, a second library of that name
// beside this one. nullptr: there is none. May be called by several threads, each call loads it
// once more; no lock is held while it is loaded, for constructors in it may call us on other
// threads.
#pragma once

namespace vrdma::client {

[[nodiscard]] void* find_real(const char* soname, const char* variable);

}  // namespace vrdma::client
