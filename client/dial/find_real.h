// Finds and loads the distribution's library behind a drop-in. Both have the same SONAME, so a
// search by name would find the drop-in itself. Compiled into each drop-in.
//
// The path is the value of the environment variable `variable` (ignored in set-uid programs);
// otherwise /run/vrdma/real of a container and the loader's default directories are searched.
// Loaded with RTLD_LOCAL, as a second library of that name. nullptr: not found. Any thread; each
// call loads the library again. No lock is held while it is loaded, because its constructors may
// call the drop-in on other threads.
#pragma once

namespace vrdma::client {

[[nodiscard]] void* find_real(const char* soname, const char* variable);

}  // namespace vrdma::client
