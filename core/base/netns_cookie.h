// The identity of a network namespace: a number that the kernel never assigns to another namespace
// before the next boot (SO_NETNS_COOKIE, Linux 5.14).
#pragma once

#include <cstdint>

#include "core/base/error.h"

namespace vrdma::base {

// The namespace in which a socket was created. For an accepted unix socket, that of the connecting
// socket, wherever its process is now. ENOTSOCK: not a socket; the call never reaches a file's
// server. ENOPROTOOPT: the kernel lacks the option.
[[nodiscard]] Result<uint64_t> netns_cookie(int socket);

// The calling thread's namespace.
[[nodiscard]] Result<uint64_t> own_netns_cookie();

}  // namespace vrdma::base
